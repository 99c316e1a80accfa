BEGIN TRANSACTION;
CREATE TABLE accounts (
	name VARCHAR(64) NOT NULL, 
	role VARCHAR(16) NOT NULL, 
	password TEXT, 
	identity VARCHAR(300), 
	made VARCHAR(27) NOT NULL, 
	disabled VARCHAR(27), 
	PRIMARY KEY (name), 
	CONSTRAINT role_is_known CHECK (role IN ('requester', 'operator', 'officer', 'auditor', 'admin')), 
	UNIQUE (identity)
);
INSERT INTO "accounts" VALUES('ann','requester',NULL,NULL,'2026-01-31T12:00:00.000004Z',NULL);
INSERT INTO "accounts" VALUES('oscar','officer',NULL,NULL,'2026-01-31T12:00:00.000006Z',NULL);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0002');
CREATE TABLE candidates (
	claim VARCHAR(32) NOT NULL, 
	federation VARCHAR(64) NOT NULL, 
	parent INTEGER NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	result TEXT NOT NULL, 
	made VARCHAR(27) NOT NULL, 
	PRIMARY KEY (claim), 
	FOREIGN KEY(federation) REFERENCES federations (name)
);
INSERT INTO "candidates" VALUES('f13a950a6661410fa4b0e529cbdf22e7','digits',4,'cc252064b817b341816b2bc110b67b1011e3f12c05d7725e1c180309f8f3a847','{"level":"quick","model":"cc252064b817b341816b2bc110b67b1011e3f12c05d7725e1c180309f8f3a847","remains":[],"values":{"accuracy_after":81.0,"accuracy_before":90.0,"cost":{},"evidence":"7c84d69496036a914874be8494738bf410f2a23f432cb5809a34fcfd6de2692b","method":"fedaf","preset":"recommended","report":null,"settings":{"epochs":1},"verdict":"forgotten"},"verdict":{"oracles":2,"reasons":["No measure tells it from an oracle, and accuracy would have."],"with_oracle":true,"word":"forgotten"}}','2026-02-02T12:00:00.000082Z');
CREATE TABLE certificates (
	sha256 VARCHAR(64) NOT NULL, 
	request VARCHAR(32) NOT NULL, 
	federation VARCHAR(64) NOT NULL, 
	version INTEGER NOT NULL, 
	"key" VARCHAR(16) NOT NULL, 
	made VARCHAR(27) NOT NULL, 
	content TEXT NOT NULL, withdrawn VARCHAR(27), 
	PRIMARY KEY (sha256), 
	FOREIGN KEY(federation, version) REFERENCES versions (federation, number), 
	FOREIGN KEY("key") REFERENCES keys (id), 
	FOREIGN KEY(request) REFERENCES requests (id)
);
INSERT INTO "certificates" VALUES('48c504f19bace8db49e0fc978bbe302dc9ad60ffb9f83590c4342b98ca55cb4c','110ef01d410c4de4a498999f5bf4e632','digits',2,'a7a81b9c4629c28e','2026-01-31T12:00:00.000030Z','{
 "schema": "fedforget/certificate/1",
 "statement": "This records what was asked, what was done and what was measured, as the ledger has it. The verdict is the audit''s and holds within what the audit can see; it is no proof that nothing of the target is left.",
 "fedforget": "0.1.0",
 "ledger": "709902f723fd43e585601487d67d371e",
 "issued": "2026-01-31T12:00:00.000029Z",
 "request": {
  "id": "110ef01d410c4de4a498999f5bf4e632",
  "federation": "digits",
  "subject": "case-1",
  "client": 0,
  "target": {
   "client": 0,
   "kind": "class",
   "label": 1
  },
  "describes": "class 1 of client 0",
  "ground": "objection",
  "received": "2026-01-31T12:00:00.000011Z",
  "due": "2026-02-28T12:00:00.000011Z"
 },
 "before": {
  "version": 1,
  "sha256": "88999c3038bb3948521976a04deea69327dbc42a0abb1a7807b56da6a068c267"
 },
 "after": {
  "version": 2,
  "sha256": "2dc09bfa5181837317dd0fc0b277bb7682389a4da256f9af5e334f837a23bb50"
 },
 "method": {
  "name": "fedaf",
  "preset": "recommended",
  "settings": {
   "epochs": 1
  }
 },
 "evidence": {
  "sha256": "19f402b8d5378b17042befa40ac482a2d654971824aaba2825e1176f74c80e6b",
  "level": "quick"
 },
 "measured": {
  "verdict": {
   "word": "forgotten",
   "with_oracle": true,
   "oracles": 2,
   "reasons": [
    "No measure tells it from an oracle, and accuracy would have."
   ]
  },
  "accuracy_before": 90,
  "accuracy_after": 89.5
 },
 "decision": null,
 "trail": [
  {
   "number": 7,
   "at": "2026-01-31T12:00:00.000012Z",
   "actor": "ann",
   "kind": "received",
   "request": "110ef01d410c4de4a498999f5bf4e632",
   "body": {
    "client": 0,
    "due": "2026-02-28T12:00:00.000011Z",
    "federation": "digits",
    "ground": "objection",
    "subject": "case-1",
    "target": {
     "client": 0,
     "kind": "class",
     "label": 1
    }
   },
   "previous": "db46b6df5bfc8525da2653500c57515d4eb31db5effb9cb07d27a84fd199eb53",
   "hash": "ff8481fe83d74296457705ecda661d182a412acc92faebf2ecea52adb6c5da00"
  },
  {
   "number": 8,
   "at": "2026-01-31T12:00:00.000015Z",
   "actor": "oscar",
   "kind": "accepted",
   "request": "110ef01d410c4de4a498999f5bf4e632",
   "body": {
    "from": "received"
   },
   "previous": "ff8481fe83d74296457705ecda661d182a412acc92faebf2ecea52adb6c5da00",
   "hash": "9823c3af212e24471079de73e961104aea7889cb601f5e4b19f735aa0da00eac"
  },
  {
   "number": 9,
   "at": "2026-01-31T12:00:00.000018Z",
   "actor": "oscar",
   "kind": "queued",
   "request": "110ef01d410c4de4a498999f5bf4e632",
   "body": {
    "from": "accepted"
   },
   "previous": "9823c3af212e24471079de73e961104aea7889cb601f5e4b19f735aa0da00eac",
   "hash": "8fe4ed26334d1300752256d4c67763e6a5db75274b344d92cc93322d6edb9f6d"
  },
  {
   "number": 10,
   "at": "2026-01-31T12:00:00.000021Z",
   "actor": "worker/first",
   "kind": "forgetting",
   "request": "110ef01d410c4de4a498999f5bf4e632",
   "body": {
    "claim": "1f4ad5fcdad642ca8cb9ffcb82b7122b",
    "from": "queued",
    "version": 1
   },
   "previous": "8fe4ed26334d1300752256d4c67763e6a5db75274b344d92cc93322d6edb9f6d",
   "hash": "76daa286517498298e9874ba2addbc1862bdde41b5c2b0a4792420077506ac02"
  },
  {
   "number": 11,
   "at": "2026-01-31T12:00:00.000023Z",
   "actor": "worker/first",
   "kind": "auditing",
   "request": "110ef01d410c4de4a498999f5bf4e632",
   "body": {
    "from": "forgetting"
   },
   "previous": "76daa286517498298e9874ba2addbc1862bdde41b5c2b0a4792420077506ac02",
   "hash": "2d3d6858a0d63b5a3af77cf5654a45e136e0d11495b56d330715b456e9325218"
  },
  {
   "number": 13,
   "at": "2026-01-31T12:00:00.000028Z",
   "actor": "worker/first",
   "kind": "done",
   "request": "110ef01d410c4de4a498999f5bf4e632",
   "body": {
    "evidence": "19f402b8d5378b17042befa40ac482a2d654971824aaba2825e1176f74c80e6b",
    "from": "auditing",
    "parent": 1,
    "parent_sha256": "88999c3038bb3948521976a04deea69327dbc42a0abb1a7807b56da6a068c267",
    "sha256": "2dc09bfa5181837317dd0fc0b277bb7682389a4da256f9af5e334f837a23bb50",
    "verdict": "forgotten",
    "version": 2
   },
   "previous": "343a1f1f1f03f72a29dea775358d8a6f4db106e5c9ccd33c48b4ddf818cd7783",
   "hash": "fafed861d816d6f0124e8eef7aa2303aa1987a054954791c5a3da67b7e0a8bf9"
  }
 ],
 "key": "a7a81b9c4629c28e",
 "signature": "444de1e21ef61e000851b9e378c98db13212556d5c0af503d039b99d1d899fc6423394257e5c84c0acd6520f98fe33eb9054d9ab215e059c2019567908084f0e"
}
',NULL);
INSERT INTO "certificates" VALUES('65463cd4a9922271883136ab1572643d7027aef3c7f912447d6cfaa2889aa9ac','016edacc87494cddafd3155f5804265d','digits',3,'a7a81b9c4629c28e','2026-02-01T12:00:00.000052Z','{
 "schema": "fedforget/certificate/1",
 "statement": "This records what was asked, what was done and what was measured, as the ledger has it. The verdict is the audit''s and holds within what the audit can see; it is no proof that nothing of the target is left.",
 "fedforget": "0.1.0",
 "ledger": "709902f723fd43e585601487d67d371e",
 "issued": "2026-02-01T12:00:00.000051Z",
 "request": {
  "id": "016edacc87494cddafd3155f5804265d",
  "federation": "digits",
  "subject": "case-2",
  "client": 0,
  "target": {
   "client": 0,
   "kind": "class",
   "label": 1
  },
  "describes": "class 1 of client 0",
  "ground": "objection",
  "received": "2026-02-01T12:00:00.000032Z",
  "due": "2026-03-01T12:00:00.000032Z"
 },
 "before": {
  "version": 2,
  "sha256": "2dc09bfa5181837317dd0fc0b277bb7682389a4da256f9af5e334f837a23bb50"
 },
 "after": {
  "version": 3,
  "sha256": "d4e7314f4b29f59b6e1c87c9d0569a910f4b3894962147023225922035480ec9"
 },
 "method": {
  "name": "fedaf",
  "preset": "recommended",
  "settings": {
   "epochs": 1
  }
 },
 "evidence": {
  "sha256": "14fd9cb665aa4c6ae92fa613f27f0de7c8eb7e582f88e6525c3b1304559e3a88",
  "level": "quick"
 },
 "measured": {
  "verdict": {
   "word": "forgotten",
   "with_oracle": true,
   "oracles": 2,
   "reasons": [
    "No measure tells it from an oracle, and accuracy would have."
   ]
  },
  "accuracy_before": 90,
  "accuracy_after": 89.5
 },
 "decision": null,
 "trail": [
  {
   "number": 15,
   "at": "2026-02-01T12:00:00.000033Z",
   "actor": "ann",
   "kind": "received",
   "request": "016edacc87494cddafd3155f5804265d",
   "body": {
    "client": 0,
    "due": "2026-03-01T12:00:00.000032Z",
    "federation": "digits",
    "ground": "objection",
    "subject": "case-2",
    "target": {
     "client": 0,
     "kind": "class",
     "label": 1
    }
   },
   "previous": "15903633f604f4bd565a00f51d5b637967ac67090c506d84a17436a0da7df012",
   "hash": "0d155ca62aabfcff0aeb35328e044f1b6138a04bcb8a7ed933a614f8a7c14c38"
  },
  {
   "number": 16,
   "at": "2026-02-01T12:00:00.000036Z",
   "actor": "oscar",
   "kind": "accepted",
   "request": "016edacc87494cddafd3155f5804265d",
   "body": {
    "from": "received"
   },
   "previous": "0d155ca62aabfcff0aeb35328e044f1b6138a04bcb8a7ed933a614f8a7c14c38",
   "hash": "21b7150a72fa26737068c9815c84788425db134a84d06e609655a73a21260227"
  },
  {
   "number": 17,
   "at": "2026-02-01T12:00:00.000039Z",
   "actor": "oscar",
   "kind": "queued",
   "request": "016edacc87494cddafd3155f5804265d",
   "body": {
    "from": "accepted"
   },
   "previous": "21b7150a72fa26737068c9815c84788425db134a84d06e609655a73a21260227",
   "hash": "e62d6ad9c0de97cbf561d37df04126f602bd6f4079ae45b8cc5edbca210c4d19"
  },
  {
   "number": 18,
   "at": "2026-02-01T12:00:00.000042Z",
   "actor": "worker/first",
   "kind": "forgetting",
   "request": "016edacc87494cddafd3155f5804265d",
   "body": {
    "claim": "d5069a6a4c114339a2659997aec93727",
    "from": "queued",
    "version": 2
   },
   "previous": "e62d6ad9c0de97cbf561d37df04126f602bd6f4079ae45b8cc5edbca210c4d19",
   "hash": "488686713cb3280b4496a4fc188e999b4458d066d2d482fd752f94c1a44d52b0"
  },
  {
   "number": 19,
   "at": "2026-02-01T12:00:00.000044Z",
   "actor": "worker/first",
   "kind": "auditing",
   "request": "016edacc87494cddafd3155f5804265d",
   "body": {
    "from": "forgetting"
   },
   "previous": "488686713cb3280b4496a4fc188e999b4458d066d2d482fd752f94c1a44d52b0",
   "hash": "b461031769b8999278e943a8947e4c51fc164ade4cbc3cae86323082a9b9e0f8"
  },
  {
   "number": 21,
   "at": "2026-02-01T12:00:00.000050Z",
   "actor": "worker/first",
   "kind": "done",
   "request": "016edacc87494cddafd3155f5804265d",
   "body": {
    "evidence": "14fd9cb665aa4c6ae92fa613f27f0de7c8eb7e582f88e6525c3b1304559e3a88",
    "from": "auditing",
    "parent": 2,
    "parent_sha256": "2dc09bfa5181837317dd0fc0b277bb7682389a4da256f9af5e334f837a23bb50",
    "sha256": "d4e7314f4b29f59b6e1c87c9d0569a910f4b3894962147023225922035480ec9",
    "verdict": "forgotten",
    "version": 3
   },
   "previous": "6394eabc6067bb32481c8e42376d3087e14a670a1619818a9bef2059b125a203",
   "hash": "7dd5c1e244d651eb6ac60a53f7c494ae7ca352bdabb3606bc537dd89045ff3ff"
  }
 ],
 "key": "a7a81b9c4629c28e",
 "signature": "8466418d80c9acad1c9eaf942d64a14abb28c58036fbfe914cfd3bc50c7f4100258d46e9a87d56cf0e7fc7875495858bc31625125464b4e95ff8f900e091a20b"
}
','2026-02-01T12:00:00.000055Z');
CREATE TABLE documents (
	sha256 VARCHAR(64) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	content TEXT NOT NULL, 
	made VARCHAR(27) NOT NULL, 
	PRIMARY KEY (sha256), 
	CONSTRAINT kind_is_known CHECK (kind IN ('evidence', 'report'))
);
INSERT INTO "documents" VALUES('19f402b8d5378b17042befa40ac482a2d654971824aaba2825e1176f74c80e6b','evidence','{
 "schema": "fedforget/evidence/2",
 "fedforget": "0.1.0",
 "created": "2026-11-18T22:16:10Z",
 "level": "quick",
 "request": {
  "requests": [],
  "samples": 12
 },
 "run": {
  "dataset": "digits"
 },
 "models": {
  "subject": {
   "file": "model.safetensors",
   "sha256": "2dc09bfa5181837317dd0fc0b277bb7682389a4da256f9af5e334f837a23bb50"
  }
 },
 "readings": [
  {
   "name": "accuracy",
   "remembers": "high",
   "subject": {
    "value": 0.6,
    "error": 0.2
   },
   "before": {
    "value": 66.0,
    "error": 1.2
   },
   "oracles": [
    {
     "value": 0.4,
     "error": 0.2
    },
    {
     "value": 0.7,
     "error": 0.2
    }
   ],
   "over": true,
   "memory": true,
   "rest": false
  },
  {
   "name": "loss",
   "remembers": "low",
   "subject": {
    "value": 2.0,
    "error": 0.1
   },
   "before": {
    "value": 0.1,
    "error": 0.1
   },
   "oracles": [
    {
     "value": 2.1,
     "error": 0.1
    },
    {
     "value": 1.9,
     "error": 0.1
    }
   ],
   "over": false,
   "memory": true,
   "rest": false
  }
 ],
 "verdict": {
  "word": "forgotten",
  "with_oracle": true,
  "oracles": 2,
  "reasons": [
   "No measure tells it from an oracle, and accuracy would have."
  ],
  "would_change": "any of accuracy, loss clearly beyond its interval",
  "findings": [
   {
    "name": "accuracy",
    "value": 0.6,
    "before": 66.0,
    "expected": 0.55,
    "low": -0.5863606258432108,
    "high": 1.686360625843211,
    "p_remembers": 0.44875529079788845,
    "p_over": 0.5512447092021115,
    "p_before": 2.220446049250313e-16,
    "says": "as if never seen",
    "rest": false
   },
   {
    "name": "loss",
    "value": 2.0,
    "before": 0.1,
    "expected": 2.0,
    "low": 1.0872695233110037,
    "high": 2.9127304766889965,
    "p_remembers": 0.5,
    "p_over": null,
    "p_before": 0.006118517335465423,
    "says": "as if never seen",
    "rest": false
   }
  ]
 },
 "pictures": {},
 "notes": [],
 "checksum": "f7fbbd9e41c16096fe32f2f690fa86a1786ede33d7308309c34f473c1ef88c4c"
}
','2026-01-31T12:00:00.000024Z');
INSERT INTO "documents" VALUES('14fd9cb665aa4c6ae92fa613f27f0de7c8eb7e582f88e6525c3b1304559e3a88','evidence','{
 "schema": "fedforget/evidence/2",
 "fedforget": "0.1.0",
 "created": "2026-11-18T22:16:10Z",
 "level": "quick",
 "request": {
  "requests": [],
  "samples": 12
 },
 "run": {
  "dataset": "digits"
 },
 "models": {
  "subject": {
   "file": "model.safetensors",
   "sha256": "d4e7314f4b29f59b6e1c87c9d0569a910f4b3894962147023225922035480ec9"
  }
 },
 "readings": [
  {
   "name": "accuracy",
   "remembers": "high",
   "subject": {
    "value": 0.6,
    "error": 0.2
   },
   "before": {
    "value": 66.0,
    "error": 1.2
   },
   "oracles": [
    {
     "value": 0.4,
     "error": 0.2
    },
    {
     "value": 0.7,
     "error": 0.2
    }
   ],
   "over": true,
   "memory": true,
   "rest": false
  },
  {
   "name": "loss",
   "remembers": "low",
   "subject": {
    "value": 2.0,
    "error": 0.1
   },
   "before": {
    "value": 0.1,
    "error": 0.1
   },
   "oracles": [
    {
     "value": 2.1,
     "error": 0.1
    },
    {
     "value": 1.9,
     "error": 0.1
    }
   ],
   "over": false,
   "memory": true,
   "rest": false
  }
 ],
 "verdict": {
  "word": "forgotten",
  "with_oracle": true,
  "oracles": 2,
  "reasons": [
   "No measure tells it from an oracle, and accuracy would have."
  ],
  "would_change": "any of accuracy, loss clearly beyond its interval",
  "findings": [
   {
    "name": "accuracy",
    "value": 0.6,
    "before": 66.0,
    "expected": 0.55,
    "low": -0.5863606258432108,
    "high": 1.686360625843211,
    "p_remembers": 0.44875529079788845,
    "p_over": 0.5512447092021115,
    "p_before": 2.220446049250313e-16,
    "says": "as if never seen",
    "rest": false
   },
   {
    "name": "loss",
    "value": 2.0,
    "before": 0.1,
    "expected": 2.0,
    "low": 1.0872695233110037,
    "high": 2.9127304766889965,
    "p_remembers": 0.5,
    "p_over": null,
    "p_before": 0.006118517335465423,
    "says": "as if never seen",
    "rest": false
   }
  ]
 },
 "pictures": {},
 "notes": [],
 "checksum": "6c145c3c0485445a71b69296c40e85badc252f5677c7a68dcf73bcae8986289f"
}
','2026-02-01T12:00:00.000045Z');
INSERT INTO "documents" VALUES('1a04999c9325a32b742fb380e91ded41760c361ca80d8ebd1cadbc97ab941666','report','<html>A report.</html>','2026-02-01T12:00:00.000046Z');
INSERT INTO "documents" VALUES('7c84d69496036a914874be8494738bf410f2a23f432cb5809a34fcfd6de2692b','evidence','{
 "schema": "fedforget/evidence/2",
 "fedforget": "0.1.0",
 "created": "2026-11-18T22:16:10Z",
 "level": "quick",
 "request": {
  "requests": [],
  "samples": 12
 },
 "run": {
  "dataset": "digits"
 },
 "models": {
  "subject": {
   "file": "model.safetensors",
   "sha256": "cc252064b817b341816b2bc110b67b1011e3f12c05d7725e1c180309f8f3a847"
  }
 },
 "readings": [
  {
   "name": "accuracy",
   "remembers": "high",
   "subject": {
    "value": 0.6,
    "error": 0.2
   },
   "before": {
    "value": 66.0,
    "error": 1.2
   },
   "oracles": [
    {
     "value": 0.4,
     "error": 0.2
    },
    {
     "value": 0.7,
     "error": 0.2
    }
   ],
   "over": true,
   "memory": true,
   "rest": false
  },
  {
   "name": "loss",
   "remembers": "low",
   "subject": {
    "value": 2.0,
    "error": 0.1
   },
   "before": {
    "value": 0.1,
    "error": 0.1
   },
   "oracles": [
    {
     "value": 2.1,
     "error": 0.1
    },
    {
     "value": 1.9,
     "error": 0.1
    }
   ],
   "over": false,
   "memory": true,
   "rest": false
  }
 ],
 "verdict": {
  "word": "forgotten",
  "with_oracle": true,
  "oracles": 2,
  "reasons": [
   "No measure tells it from an oracle, and accuracy would have."
  ],
  "would_change": "any of accuracy, loss clearly beyond its interval",
  "findings": [
   {
    "name": "accuracy",
    "value": 0.6,
    "before": 66.0,
    "expected": 0.55,
    "low": -0.5863606258432108,
    "high": 1.686360625843211,
    "p_remembers": 0.44875529079788845,
    "p_over": 0.5512447092021115,
    "p_before": 2.220446049250313e-16,
    "says": "as if never seen",
    "rest": false
   },
   {
    "name": "loss",
    "value": 2.0,
    "before": 0.1,
    "expected": 2.0,
    "low": 1.0872695233110037,
    "high": 2.9127304766889965,
    "p_remembers": 0.5,
    "p_over": null,
    "p_before": 0.006118517335465423,
    "says": "as if never seen",
    "rest": false
   }
  ]
 },
 "pictures": {},
 "notes": [],
 "checksum": "cfc43c1e43a089586f93fde5bc74217def66c485b2d92d235758608322cc524e"
}
','2026-02-02T12:00:00.000081Z');
CREATE TABLE events (
	number INTEGER NOT NULL, 
	at VARCHAR(27) NOT NULL, 
	actor VARCHAR(128) NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	request VARCHAR(32), 
	body TEXT NOT NULL, 
	previous VARCHAR(64) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	PRIMARY KEY (number), 
	FOREIGN KEY(request) REFERENCES requests (id), 
	UNIQUE (hash)
);
INSERT INTO "events" VALUES(1,'2026-01-31T12:00:00.000001Z','system','ledger made',NULL,'{"ledger":"709902f723fd43e585601487d67d371e"}','0000000000000000000000000000000000000000000000000000000000000000','236a4efe52c03ac77a4bd5b20125eb8df977f261f44949061c8470b03800e480');
INSERT INTO "events" VALUES(2,'2026-01-31T12:00:00.000003Z','system','key made',NULL,'{"key":"a7a81b9c4629c28e","public":"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAt2cUiNW97OXIs22EUdfbXrkiu9/qKP++hitLGW/YJzQ=\n-----END PUBLIC KEY-----\n"}','236a4efe52c03ac77a4bd5b20125eb8df977f261f44949061c8470b03800e480','4e7df55c5e16c6117eb03fb4df8f7eb297e182377feb3a82da7e7d081ce31580');
INSERT INTO "events" VALUES(3,'2026-01-31T12:00:00.000005Z','system','account added',NULL,'{"account":"ann","role":"requester"}','4e7df55c5e16c6117eb03fb4df8f7eb297e182377feb3a82da7e7d081ce31580','68ac48689ea11f84addf6e6fa4d79ddec10a5cc63b793c246a5158c2af493f77');
INSERT INTO "events" VALUES(4,'2026-01-31T12:00:00.000007Z','system','account added',NULL,'{"account":"oscar","role":"officer"}','68ac48689ea11f84addf6e6fa4d79ddec10a5cc63b793c246a5158c2af493f77','ff75fe9f3d0285ff3809c9cae4c4b1f75f3ec9ea5fd5d73b453185237c1e4d0a');
INSERT INTO "events" VALUES(5,'2026-01-31T12:00:00.000009Z','system','federation registered',NULL,'{"accuracy_limit":2.0,"audit_level":"quick","federation":"digits","keep_days":30,"kind":"local","method":"fedaf","place":"/nowhere","preset":"recommended","settings":{},"together":1}','ff75fe9f3d0285ff3809c9cae4c4b1f75f3ec9ea5fd5d73b453185237c1e4d0a','a83a3ce7f1f5373ee33526538585fa333e075dda4c09cf4ddb1ea5b2c44596b8');
INSERT INTO "events" VALUES(6,'2026-01-31T12:00:00.000010Z','system','version published',NULL,'{"federation":"digits","kind":"first","parent":null,"sha256":"88999c3038bb3948521976a04deea69327dbc42a0abb1a7807b56da6a068c267","version":1}','a83a3ce7f1f5373ee33526538585fa333e075dda4c09cf4ddb1ea5b2c44596b8','db46b6df5bfc8525da2653500c57515d4eb31db5effb9cb07d27a84fd199eb53');
INSERT INTO "events" VALUES(7,'2026-01-31T12:00:00.000012Z','ann','received','110ef01d410c4de4a498999f5bf4e632','{"client":0,"due":"2026-02-28T12:00:00.000011Z","federation":"digits","ground":"objection","subject":"case-1","target":{"client":0,"kind":"class","label":1}}','db46b6df5bfc8525da2653500c57515d4eb31db5effb9cb07d27a84fd199eb53','ff8481fe83d74296457705ecda661d182a412acc92faebf2ecea52adb6c5da00');
INSERT INTO "events" VALUES(8,'2026-01-31T12:00:00.000015Z','oscar','accepted','110ef01d410c4de4a498999f5bf4e632','{"from":"received"}','ff8481fe83d74296457705ecda661d182a412acc92faebf2ecea52adb6c5da00','9823c3af212e24471079de73e961104aea7889cb601f5e4b19f735aa0da00eac');
INSERT INTO "events" VALUES(9,'2026-01-31T12:00:00.000018Z','oscar','queued','110ef01d410c4de4a498999f5bf4e632','{"from":"accepted"}','9823c3af212e24471079de73e961104aea7889cb601f5e4b19f735aa0da00eac','8fe4ed26334d1300752256d4c67763e6a5db75274b344d92cc93322d6edb9f6d');
INSERT INTO "events" VALUES(10,'2026-01-31T12:00:00.000021Z','worker/first','forgetting','110ef01d410c4de4a498999f5bf4e632','{"claim":"1f4ad5fcdad642ca8cb9ffcb82b7122b","from":"queued","version":1}','8fe4ed26334d1300752256d4c67763e6a5db75274b344d92cc93322d6edb9f6d','76daa286517498298e9874ba2addbc1862bdde41b5c2b0a4792420077506ac02');
INSERT INTO "events" VALUES(11,'2026-01-31T12:00:00.000023Z','worker/first','auditing','110ef01d410c4de4a498999f5bf4e632','{"from":"forgetting"}','76daa286517498298e9874ba2addbc1862bdde41b5c2b0a4792420077506ac02','2d3d6858a0d63b5a3af77cf5654a45e136e0d11495b56d330715b456e9325218');
INSERT INTO "events" VALUES(12,'2026-01-31T12:00:00.000026Z','worker/first','version published',NULL,'{"evidence":"19f402b8d5378b17042befa40ac482a2d654971824aaba2825e1176f74c80e6b","federation":"digits","kind":"forgotten","method":"fedaf","parent":1,"preset":"recommended","requests":["110ef01d410c4de4a498999f5bf4e632"],"sha256":"2dc09bfa5181837317dd0fc0b277bb7682389a4da256f9af5e334f837a23bb50","verdict":"forgotten","version":2}','2d3d6858a0d63b5a3af77cf5654a45e136e0d11495b56d330715b456e9325218','343a1f1f1f03f72a29dea775358d8a6f4db106e5c9ccd33c48b4ddf818cd7783');
INSERT INTO "events" VALUES(13,'2026-01-31T12:00:00.000028Z','worker/first','done','110ef01d410c4de4a498999f5bf4e632','{"evidence":"19f402b8d5378b17042befa40ac482a2d654971824aaba2825e1176f74c80e6b","from":"auditing","parent":1,"parent_sha256":"88999c3038bb3948521976a04deea69327dbc42a0abb1a7807b56da6a068c267","sha256":"2dc09bfa5181837317dd0fc0b277bb7682389a4da256f9af5e334f837a23bb50","verdict":"forgotten","version":2}','343a1f1f1f03f72a29dea775358d8a6f4db106e5c9ccd33c48b4ddf818cd7783','fafed861d816d6f0124e8eef7aa2303aa1987a054954791c5a3da67b7e0a8bf9');
INSERT INTO "events" VALUES(14,'2026-01-31T12:00:00.000031Z','worker/first','certified','110ef01d410c4de4a498999f5bf4e632','{"certificate":"48c504f19bace8db49e0fc978bbe302dc9ad60ffb9f83590c4342b98ca55cb4c","key":"a7a81b9c4629c28e"}','fafed861d816d6f0124e8eef7aa2303aa1987a054954791c5a3da67b7e0a8bf9','15903633f604f4bd565a00f51d5b637967ac67090c506d84a17436a0da7df012');
INSERT INTO "events" VALUES(15,'2026-02-01T12:00:00.000033Z','ann','received','016edacc87494cddafd3155f5804265d','{"client":0,"due":"2026-03-01T12:00:00.000032Z","federation":"digits","ground":"objection","subject":"case-2","target":{"client":0,"kind":"class","label":1}}','15903633f604f4bd565a00f51d5b637967ac67090c506d84a17436a0da7df012','0d155ca62aabfcff0aeb35328e044f1b6138a04bcb8a7ed933a614f8a7c14c38');
INSERT INTO "events" VALUES(16,'2026-02-01T12:00:00.000036Z','oscar','accepted','016edacc87494cddafd3155f5804265d','{"from":"received"}','0d155ca62aabfcff0aeb35328e044f1b6138a04bcb8a7ed933a614f8a7c14c38','21b7150a72fa26737068c9815c84788425db134a84d06e609655a73a21260227');
INSERT INTO "events" VALUES(17,'2026-02-01T12:00:00.000039Z','oscar','queued','016edacc87494cddafd3155f5804265d','{"from":"accepted"}','21b7150a72fa26737068c9815c84788425db134a84d06e609655a73a21260227','e62d6ad9c0de97cbf561d37df04126f602bd6f4079ae45b8cc5edbca210c4d19');
INSERT INTO "events" VALUES(18,'2026-02-01T12:00:00.000042Z','worker/first','forgetting','016edacc87494cddafd3155f5804265d','{"claim":"d5069a6a4c114339a2659997aec93727","from":"queued","version":2}','e62d6ad9c0de97cbf561d37df04126f602bd6f4079ae45b8cc5edbca210c4d19','488686713cb3280b4496a4fc188e999b4458d066d2d482fd752f94c1a44d52b0');
INSERT INTO "events" VALUES(19,'2026-02-01T12:00:00.000044Z','worker/first','auditing','016edacc87494cddafd3155f5804265d','{"from":"forgetting"}','488686713cb3280b4496a4fc188e999b4458d066d2d482fd752f94c1a44d52b0','b461031769b8999278e943a8947e4c51fc164ade4cbc3cae86323082a9b9e0f8');
INSERT INTO "events" VALUES(20,'2026-02-01T12:00:00.000048Z','worker/first','version published',NULL,'{"evidence":"14fd9cb665aa4c6ae92fa613f27f0de7c8eb7e582f88e6525c3b1304559e3a88","federation":"digits","kind":"forgotten","method":"fedaf","parent":2,"preset":"recommended","requests":["016edacc87494cddafd3155f5804265d"],"sha256":"d4e7314f4b29f59b6e1c87c9d0569a910f4b3894962147023225922035480ec9","verdict":"forgotten","version":3}','b461031769b8999278e943a8947e4c51fc164ade4cbc3cae86323082a9b9e0f8','6394eabc6067bb32481c8e42376d3087e14a670a1619818a9bef2059b125a203');
INSERT INTO "events" VALUES(21,'2026-02-01T12:00:00.000050Z','worker/first','done','016edacc87494cddafd3155f5804265d','{"evidence":"14fd9cb665aa4c6ae92fa613f27f0de7c8eb7e582f88e6525c3b1304559e3a88","from":"auditing","parent":2,"parent_sha256":"2dc09bfa5181837317dd0fc0b277bb7682389a4da256f9af5e334f837a23bb50","sha256":"d4e7314f4b29f59b6e1c87c9d0569a910f4b3894962147023225922035480ec9","verdict":"forgotten","version":3}','6394eabc6067bb32481c8e42376d3087e14a670a1619818a9bef2059b125a203','7dd5c1e244d651eb6ac60a53f7c494ae7ca352bdabb3606bc537dd89045ff3ff');
INSERT INTO "events" VALUES(22,'2026-02-01T12:00:00.000053Z','worker/first','certified','016edacc87494cddafd3155f5804265d','{"certificate":"65463cd4a9922271883136ab1572643d7027aef3c7f912447d6cfaa2889aa9ac","key":"a7a81b9c4629c28e"}','7dd5c1e244d651eb6ac60a53f7c494ae7ca352bdabb3606bc537dd89045ff3ff','a1913ad058ab35aa0e04400e6a7c6060af53039614b0d4655fe9a293ef6c6a70');
INSERT INTO "events" VALUES(23,'2026-02-01T12:00:00.000056Z','oscar','rolled back',NULL,'{"evidence":null,"federation":"digits","kind":"rollback","method":null,"parent":3,"preset":null,"reason":"broken","restores":2,"sha256":"2dc09bfa5181837317dd0fc0b277bb7682389a4da256f9af5e334f837a23bb50","undone":["016edacc87494cddafd3155f5804265d"],"verdict":null,"version":4}','a1913ad058ab35aa0e04400e6a7c6060af53039614b0d4655fe9a293ef6c6a70','7ff3af42f65bb040904a9eb0e9142ee248fdf4b8e50d4dd135fac7ab6e7fe9a3');
INSERT INTO "events" VALUES(24,'2026-02-01T12:00:00.000058Z','oscar','failed','016edacc87494cddafd3155f5804265d','{"from":"done","reason":"Version 3 was rolled back to version 2: broken"}','7ff3af42f65bb040904a9eb0e9142ee248fdf4b8e50d4dd135fac7ab6e7fe9a3','30635c39001b631f5ec8fb42c57a540d27ad8d88b8a133b9436dbe173f4951e7');
INSERT INTO "events" VALUES(25,'2026-02-02T12:00:00.000060Z','ann','received','d25016e4c3d44ddcaed37bdc00a02dce','{"client":0,"due":"2026-03-02T12:00:00.000059Z","federation":"digits","ground":"objection","subject":"case-3","target":{"client":0,"kind":"class","label":1}}','30635c39001b631f5ec8fb42c57a540d27ad8d88b8a133b9436dbe173f4951e7','b17b039ff32b686bea53da927cf0301c26999ec2c413f371be2d03a5c3dee69c');
INSERT INTO "events" VALUES(26,'2026-02-02T12:00:00.000063Z','oscar','refused','d25016e4c3d44ddcaed37bdc00a02dce','{"from":"received","reason":"Nothing is held."}','b17b039ff32b686bea53da927cf0301c26999ec2c413f371be2d03a5c3dee69c','d606662e3e26a2b0416a272f59a0e31a81aa1fa43993101febdd552cab79f3f4');
INSERT INTO "events" VALUES(27,'2026-02-02T12:00:00.000065Z','ann','received','7fa604e9aeb64af9a769f9f59adb40b5','{"client":0,"due":"2026-03-02T12:00:00.000064Z","federation":"digits","ground":"objection","subject":"case-4","target":{"client":0,"kind":"class","label":1}}','d606662e3e26a2b0416a272f59a0e31a81aa1fa43993101febdd552cab79f3f4','31969c44f24ec78a809577068c6166fc6ee999f003cd2e74bbc33c329d040efd');
INSERT INTO "events" VALUES(28,'2026-02-02T12:00:00.000067Z','oscar','extended','7fa604e9aeb64af9a769f9f59adb40b5','{"due":"2026-04-02T12:00:00.000064Z","months":1,"reason":"hard"}','31969c44f24ec78a809577068c6166fc6ee999f003cd2e74bbc33c329d040efd','83d80b5edc163185f4602852c6a8f685459ea91facfc8f1c3f4fa97b75537683');
INSERT INTO "events" VALUES(29,'2026-02-02T12:00:00.000069Z','ann','received','424db2a540ec45b58094519914734cb5','{"client":0,"due":"2026-03-02T12:00:00.000068Z","federation":"digits","ground":"objection","subject":"case-5","target":{"client":0,"kind":"class","label":1}}','83d80b5edc163185f4602852c6a8f685459ea91facfc8f1c3f4fa97b75537683','3d920a3d59e7a0060ba3a60edd12ed48feda519ed9a926e3d56fcd26b705c620');
INSERT INTO "events" VALUES(30,'2026-02-02T12:00:00.000072Z','oscar','accepted','424db2a540ec45b58094519914734cb5','{"from":"received"}','3d920a3d59e7a0060ba3a60edd12ed48feda519ed9a926e3d56fcd26b705c620','7045f8856c1427cc24d97e5fde08f6bf2a485c1dfb806d89e9cba57178082e6a');
INSERT INTO "events" VALUES(31,'2026-02-02T12:00:00.000075Z','oscar','queued','424db2a540ec45b58094519914734cb5','{"from":"accepted"}','7045f8856c1427cc24d97e5fde08f6bf2a485c1dfb806d89e9cba57178082e6a','083c0dbd1a11e5604b6978c141b682f511534050ffc80eff0d4373e90e9ad95a');
INSERT INTO "events" VALUES(32,'2026-02-02T12:00:00.000078Z','worker/first','forgetting','424db2a540ec45b58094519914734cb5','{"claim":"f13a950a6661410fa4b0e529cbdf22e7","from":"queued","version":4}','083c0dbd1a11e5604b6978c141b682f511534050ffc80eff0d4373e90e9ad95a','911571b988d76e756c238d17d09f7fa3f2bd1956ecf777e06429107dd5703f82');
INSERT INTO "events" VALUES(33,'2026-02-02T12:00:00.000080Z','worker/first','auditing','424db2a540ec45b58094519914734cb5','{"from":"forgetting"}','911571b988d76e756c238d17d09f7fa3f2bd1956ecf777e06429107dd5703f82','05287351a21e4798756c2e46ca2d15f60405984e1dd7dca9f747794c41f3bcf5');
INSERT INTO "events" VALUES(34,'2026-02-02T12:00:00.000084Z','worker/first','deciding','424db2a540ec45b58094519914734cb5','{"evidence":"7c84d69496036a914874be8494738bf410f2a23f432cb5809a34fcfd6de2692b","from":"auditing","reason":"The retained accuracy fell by 9.00 points; the limit is 2.","sha256":"cc252064b817b341816b2bc110b67b1011e3f12c05d7725e1c180309f8f3a847","verdict":"forgotten"}','05287351a21e4798756c2e46ca2d15f60405984e1dd7dca9f747794c41f3bcf5','7ef2ce5c57cb6b421adcf4b4492e470aa38841cddd4caf4f42742db11509d806');
INSERT INTO "events" VALUES(35,'2026-02-02T12:00:00.000086Z','ann','received','5b1122e333604f1998eef28f7184bec9','{"client":0,"due":"2026-03-02T12:00:00.000085Z","federation":"digits","ground":"objection","subject":"case-6","target":{"client":0,"kind":"class","label":1}}','7ef2ce5c57cb6b421adcf4b4492e470aa38841cddd4caf4f42742db11509d806','8df73638357b97ebe8415f248cffac0a28ea07f2cb92adea6f602609084c0133');
INSERT INTO "events" VALUES(36,'2026-02-02T12:00:00.000089Z','oscar','accepted','5b1122e333604f1998eef28f7184bec9','{"from":"received"}','8df73638357b97ebe8415f248cffac0a28ea07f2cb92adea6f602609084c0133','8356a70fbba86e0649dc7e51622f1d7252854cdae8f2c2a501985380d9222562');
INSERT INTO "events" VALUES(37,'2026-02-02T12:00:00.000092Z','oscar','queued','5b1122e333604f1998eef28f7184bec9','{"from":"accepted"}','8356a70fbba86e0649dc7e51622f1d7252854cdae8f2c2a501985380d9222562','0c6b02ba6fae9ee8fc187639460cee62dd405cf75f79f5872166d8e9e0963201');
INSERT INTO "events" VALUES(38,'2026-02-02T12:00:00.000094Z','ann','token made',NULL,'{"account":"ann","label":"cron","token":"0c4e22e9800eafc7"}','0c6b02ba6fae9ee8fc187639460cee62dd405cf75f79f5872166d8e9e0963201','5a2c357b907dfd977913af4c088893d4894af9e9fcbb252fa53ce53bdfb164c4');
INSERT INTO "events" VALUES(39,'2026-02-02T12:00:00.000096Z','system','backup made',NULL,'{"hash":"5a2c357b907dfd977913af4c088893d4894af9e9fcbb252fa53ce53bdfb164c4","keys":false,"number":38}','5a2c357b907dfd977913af4c088893d4894af9e9fcbb252fa53ce53bdfb164c4','30930cba3d22fc7e42e2ff49e9092dc4a8e9b4c1217b5873d9753be25365e3ac');
CREATE TABLE federations (
	name VARCHAR(64) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	place TEXT NOT NULL, 
	method VARCHAR(64) NOT NULL, 
	preset VARCHAR(64) NOT NULL, 
	settings TEXT NOT NULL, 
	audit_level VARCHAR(16) NOT NULL, 
	accuracy_limit DOUBLE NOT NULL, 
	keep_days INTEGER NOT NULL, 
	together INTEGER NOT NULL, 
	description TEXT NOT NULL, 
	registered VARCHAR(27) NOT NULL, 
	claim VARCHAR(32), 
	worker VARCHAR(128), 
	lease_until VARCHAR(27), 
	PRIMARY KEY (name), 
	CONSTRAINT kind_is_known CHECK (kind IN ('local', 'flower')), 
	CONSTRAINT accuracy_limit_is_positive CHECK (accuracy_limit >= 0), 
	CONSTRAINT keep_days_is_positive CHECK (keep_days >= 0), 
	CONSTRAINT together_is_positive CHECK (together >= 1)
);
INSERT INTO "federations" VALUES('digits','local','/nowhere','fedaf','recommended','{}','quick',2.0,30,1,'{"classes":["zero","one","two"],"clients":[{"client":0,"counts":[5,5,0],"name":"client 0","samples":10},{"client":1,"counts":[3,4,9],"name":"client 1","samples":16},{"client":2,"counts":[1,1,1],"name":"client 2","samples":3}],"shape":[6]}','2026-01-31T12:00:00.000008Z',NULL,NULL,NULL);
CREATE TABLE head (
	id INTEGER NOT NULL, 
	ledger VARCHAR(32) NOT NULL, 
	number INTEGER NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT one_head CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,'709902f723fd43e585601487d67d371e',39,'30930cba3d22fc7e42e2ff49e9092dc4a8e9b4c1217b5873d9753be25365e3ac');
CREATE TABLE keys (
	id VARCHAR(16) NOT NULL, 
	public TEXT NOT NULL, 
	made VARCHAR(27) NOT NULL, 
	retired VARCHAR(27), 
	PRIMARY KEY (id)
);
INSERT INTO "keys" VALUES('a7a81b9c4629c28e','-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAt2cUiNW97OXIs22EUdfbXrkiu9/qKP++hitLGW/YJzQ=
-----END PUBLIC KEY-----
','2026-01-31T12:00:00.000002Z',NULL);
CREATE TABLE links (
	hash VARCHAR(64) NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	made VARCHAR(27) NOT NULL, 
	expires VARCHAR(27) NOT NULL, 
	used VARCHAR(27), 
	PRIMARY KEY (hash), 
	FOREIGN KEY(account) REFERENCES accounts (name)
);
CREATE TABLE progress (
	request VARCHAR(32) NOT NULL, 
	stage VARCHAR(64) NOT NULL, 
	fraction DOUBLE NOT NULL, 
	at VARCHAR(27) NOT NULL, 
	PRIMARY KEY (request), 
	FOREIGN KEY(request) REFERENCES requests (id)
);
CREATE TABLE remains (
	federation VARCHAR(64) NOT NULL, 
	version INTEGER NOT NULL, 
	path VARCHAR(500) NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	destroyed VARCHAR(27), 
	PRIMARY KEY (federation, version, path), 
	FOREIGN KEY(federation, version) REFERENCES versions (federation, number)
);
INSERT INTO "remains" VALUES('digits',2,'runs/sketch.pt','sketch','f416b363c6c5f07011f5dc463a2395873ee035f0f8bea3e585297ec65052c737',NULL);
CREATE TABLE requests (
	id VARCHAR(32) NOT NULL, 
	fingerprint VARCHAR(64) NOT NULL, 
	federation VARCHAR(64) NOT NULL, 
	asked_by VARCHAR(64) NOT NULL, 
	subject VARCHAR(64) NOT NULL, 
	client INTEGER NOT NULL, 
	target TEXT NOT NULL, 
	ground VARCHAR(32) NOT NULL, 
	received VARCHAR(27) NOT NULL, 
	due VARCHAR(27) NOT NULL, 
	extended INTEGER NOT NULL, 
	extension_reason TEXT, 
	state VARCHAR(16) NOT NULL, 
	reason TEXT, 
	changed VARCHAR(27) NOT NULL, 
	attempts INTEGER NOT NULL, 
	failures INTEGER NOT NULL, 
	not_before VARCHAR(27) NOT NULL, 
	claim VARCHAR(32), 
	worker VARCHAR(128), 
	version INTEGER, 
	evidence VARCHAR(64), 
	report VARCHAR(64), 
	PRIMARY KEY (id), 
	CONSTRAINT done_has_a_version CHECK ((state = 'done') = (version IS NOT NULL)), 
	CONSTRAINT ground_is_known CHECK (ground IN ('consent withdrawn', 'objection', 'no longer needed', 'unlawful', 'legal obligation', 'other')), 
	CONSTRAINT state_is_known CHECK (state IN ('received', 'accepted', 'refused', 'queued', 'forgetting', 'auditing', 'deciding', 'done', 'failed')), 
	CONSTRAINT a_refusal_has_a_reason CHECK (state NOT IN ('refused', 'failed', 'deciding') OR reason IS NOT NULL), 
	CONSTRAINT extended_with_a_reason CHECK ((extended = 0) = (extension_reason IS NULL)), 
	CONSTRAINT extended_by_two_months_at_most CHECK (extended IN (0, 1, 2)), 
	FOREIGN KEY(asked_by) REFERENCES accounts (name), 
	FOREIGN KEY(evidence) REFERENCES documents (sha256), 
	FOREIGN KEY(federation, version) REFERENCES versions (federation, number), 
	FOREIGN KEY(federation) REFERENCES federations (name), 
	FOREIGN KEY(report) REFERENCES documents (sha256), 
	UNIQUE (fingerprint)
);
INSERT INTO "requests" VALUES('110ef01d410c4de4a498999f5bf4e632','aebd92576b2191d1aa64e28e3a87415720c7a385a6fca6501928851fe7227195','digits','ann','case-1',0,'{"client":0,"kind":"class","label":1}','objection','2026-01-31T12:00:00.000011Z','2026-02-28T12:00:00.000011Z',0,NULL,'done',NULL,'2026-01-31T12:00:00.000027Z',1,0,'2026-01-31T12:00:00.000016Z','1f4ad5fcdad642ca8cb9ffcb82b7122b','first',2,'19f402b8d5378b17042befa40ac482a2d654971824aaba2825e1176f74c80e6b',NULL);
INSERT INTO "requests" VALUES('016edacc87494cddafd3155f5804265d','6b3473ac6993019ad080ce2113fc7022fc2c0f507682619f5c79c8e1a6973033','digits','ann','case-2',0,'{"client":0,"kind":"class","label":1}','objection','2026-02-01T12:00:00.000032Z','2026-03-01T12:00:00.000032Z',0,NULL,'failed','Version 3 was rolled back to version 2: broken','2026-02-01T12:00:00.000057Z',1,0,'2026-02-01T12:00:00.000037Z','d5069a6a4c114339a2659997aec93727','first',NULL,'14fd9cb665aa4c6ae92fa613f27f0de7c8eb7e582f88e6525c3b1304559e3a88','1a04999c9325a32b742fb380e91ded41760c361ca80d8ebd1cadbc97ab941666');
INSERT INTO "requests" VALUES('d25016e4c3d44ddcaed37bdc00a02dce','f118a3e3edf707bb2b5c4396b84b55c3ecd3e419dde0e29a38f99c878019393d','digits','ann','case-3',0,'{"client":0,"kind":"class","label":1}','objection','2026-02-02T12:00:00.000059Z','2026-03-02T12:00:00.000059Z',0,NULL,'refused','Nothing is held.','2026-02-02T12:00:00.000062Z',0,0,'2026-02-02T12:00:00.000059Z',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "requests" VALUES('7fa604e9aeb64af9a769f9f59adb40b5','e393c5f786f5fbd472a1e965edd562fdd1244a0d945d19d9f991d03172f78a5f','digits','ann','case-4',0,'{"client":0,"kind":"class","label":1}','objection','2026-02-02T12:00:00.000064Z','2026-04-02T12:00:00.000064Z',1,'hard','received',NULL,'2026-02-02T12:00:00.000064Z',0,0,'2026-02-02T12:00:00.000064Z',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "requests" VALUES('424db2a540ec45b58094519914734cb5','344fbff5bb1e2faa54086b263d1a930260431c5b33b83ddf5d29c1b4ecd56b82','digits','ann','case-5',0,'{"client":0,"kind":"class","label":1}','objection','2026-02-02T12:00:00.000068Z','2026-03-02T12:00:00.000068Z',0,NULL,'deciding','The retained accuracy fell by 9.00 points; the limit is 2.','2026-02-02T12:00:00.000083Z',1,0,'2026-02-02T12:00:00.000073Z','f13a950a6661410fa4b0e529cbdf22e7','first',NULL,'7c84d69496036a914874be8494738bf410f2a23f432cb5809a34fcfd6de2692b',NULL);
INSERT INTO "requests" VALUES('5b1122e333604f1998eef28f7184bec9','fbedcdff3e20b4cab6644a5d4290971a63125d8d4088146345ea1140b8349cd4','digits','ann','case-6',0,'{"client":0,"kind":"class","label":1}','objection','2026-02-02T12:00:00.000085Z','2026-03-02T12:00:00.000085Z',0,NULL,'queued',NULL,'2026-02-02T12:00:00.000091Z',0,0,'2026-02-02T12:00:00.000090Z',NULL,NULL,NULL,NULL,NULL);
CREATE TABLE sessions (
	hash VARCHAR(64) NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	made VARCHAR(27) NOT NULL, 
	expires VARCHAR(27) NOT NULL, 
	PRIMARY KEY (hash), 
	FOREIGN KEY(account) REFERENCES accounts (name)
);
CREATE TABLE tokens (
	id VARCHAR(16) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	account VARCHAR(64) NOT NULL, 
	label VARCHAR(64) NOT NULL, 
	made VARCHAR(27) NOT NULL, 
	expires VARCHAR(27), 
	revoked VARCHAR(27), 
	PRIMARY KEY (id), 
	FOREIGN KEY(account) REFERENCES accounts (name), 
	UNIQUE (hash)
);
INSERT INTO "tokens" VALUES('0c4e22e9800eafc7','197b985b7da88823fc692eae571dc680f4b463e6ac5aee090bc56f3fe9f124ed','ann','cron','2026-02-02T12:00:00.000093Z','2026-05-03T12:00:00.000093Z',NULL);
CREATE TABLE versions (
	federation VARCHAR(64) NOT NULL, 
	number INTEGER NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	parent INTEGER, 
	kind VARCHAR(16) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	published VARCHAR(27) NOT NULL, 
	superseded VARCHAR(27), 
	destroyed VARCHAR(27), 
	restores INTEGER, 
	method VARCHAR(64), 
	preset VARCHAR(64), 
	settings TEXT, 
	verdict VARCHAR(32), 
	accuracy_before DOUBLE, 
	accuracy_after DOUBLE, 
	cost TEXT, 
	evidence VARCHAR(64), 
	report VARCHAR(64), 
	PRIMARY KEY (federation, number), 
	CONSTRAINT kind_is_known CHECK (kind IN ('first', 'forgotten', 'rollback')), 
	CONSTRAINT state_is_known CHECK (state IN ('current', 'superseded', 'destroyed')), 
	FOREIGN KEY(evidence) REFERENCES documents (sha256), 
	FOREIGN KEY(federation, parent) REFERENCES versions (federation, number), 
	FOREIGN KEY(federation) REFERENCES federations (name), 
	FOREIGN KEY(report) REFERENCES documents (sha256)
);
INSERT INTO "versions" VALUES('digits',1,'88999c3038bb3948521976a04deea69327dbc42a0abb1a7807b56da6a068c267',NULL,'first','superseded','2026-01-31T12:00:00.000008Z','2026-01-31T12:00:00.000025Z',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "versions" VALUES('digits',2,'2dc09bfa5181837317dd0fc0b277bb7682389a4da256f9af5e334f837a23bb50',1,'forgotten','superseded','2026-01-31T12:00:00.000025Z','2026-02-01T12:00:00.000047Z',NULL,NULL,'fedaf','recommended','{"epochs":1}','forgotten',90.0,89.5,'{}','19f402b8d5378b17042befa40ac482a2d654971824aaba2825e1176f74c80e6b',NULL);
INSERT INTO "versions" VALUES('digits',3,'d4e7314f4b29f59b6e1c87c9d0569a910f4b3894962147023225922035480ec9',2,'forgotten','superseded','2026-02-01T12:00:00.000047Z','2026-02-01T12:00:00.000054Z',NULL,NULL,'fedaf','recommended','{"epochs":1}','forgotten',90.0,89.5,'{}','14fd9cb665aa4c6ae92fa613f27f0de7c8eb7e582f88e6525c3b1304559e3a88','1a04999c9325a32b742fb380e91ded41760c361ca80d8ebd1cadbc97ab941666');
INSERT INTO "versions" VALUES('digits',4,'2dc09bfa5181837317dd0fc0b277bb7682389a4da256f9af5e334f837a23bb50',3,'rollback','current','2026-02-01T12:00:00.000054Z',NULL,NULL,2,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE UNIQUE INDEX one_key_signs ON keys (coalesce(retired, '')) WHERE retired IS NULL;
CREATE INDEX ix_candidates_federation ON candidates (federation);
CREATE INDEX ix_links_account ON links (account);
CREATE INDEX ix_links_expires ON links (expires);
CREATE INDEX ix_sessions_account ON sessions (account);
CREATE INDEX ix_sessions_expires ON sessions (expires);
CREATE INDEX ix_tokens_account ON tokens (account);
CREATE INDEX ix_versions_sha256 ON versions (sha256);
CREATE UNIQUE INDEX one_current_version ON versions (federation) WHERE state = 'current';
CREATE INDEX requests_by_asker ON requests (asked_by, received, id);
CREATE INDEX requests_by_claim ON requests (claim);
CREATE INDEX requests_by_due ON requests (state, due, id);
CREATE INDEX requests_by_received ON requests (received, id);
CREATE INDEX requests_by_version ON requests (federation, version);
CREATE INDEX requests_to_serve ON requests (federation, state, received, id);
CREATE INDEX ix_certificates_request ON certificates (request);
CREATE INDEX events_by_actor ON events (actor, number);
CREATE INDEX events_by_kind ON events (kind, number);
CREATE INDEX events_by_request ON events (request, number);
CREATE TRIGGER rule_request_begins BEFORE INSERT ON requests WHEN NEW.state <> 'received' OR NEW.version IS NOT NULL OR NEW.extended <> 0 BEGIN SELECT RAISE(ABORT, 'refused by the ledger: a request begins as received'); END;
CREATE TRIGGER rule_request_moves BEFORE UPDATE ON requests WHEN NEW.state <> OLD.state AND NOT ((OLD.state = 'received' AND NEW.state IN ('accepted', 'refused')) OR (OLD.state = 'accepted' AND NEW.state IN ('queued', 'refused')) OR (OLD.state = 'queued' AND NEW.state IN ('forgetting', 'refused')) OR (OLD.state = 'forgetting' AND NEW.state IN ('auditing', 'failed', 'queued')) OR (OLD.state = 'auditing' AND NEW.state IN ('deciding', 'done', 'failed', 'queued')) OR (OLD.state = 'deciding' AND NEW.state IN ('done', 'failed')) OR (OLD.state = 'failed' AND NEW.state IN ('queued', 'refused')) OR (OLD.state = 'done' AND NEW.state IN ('failed'))) BEGIN SELECT RAISE(ABORT, 'refused by the ledger: a request cannot go from this state to that one'); END;
CREATE TRIGGER rule_request_stays BEFORE UPDATE ON requests WHEN ((NEW.id = OLD.id OR (NEW.id IS NULL AND OLD.id IS NULL)) AND (NEW.fingerprint = OLD.fingerprint OR (NEW.fingerprint IS NULL AND OLD.fingerprint IS NULL)) AND (NEW.federation = OLD.federation OR (NEW.federation IS NULL AND OLD.federation IS NULL)) AND (NEW.asked_by = OLD.asked_by OR (NEW.asked_by IS NULL AND OLD.asked_by IS NULL)) AND (NEW.subject = OLD.subject OR (NEW.subject IS NULL AND OLD.subject IS NULL)) AND (NEW.client = OLD.client OR (NEW.client IS NULL AND OLD.client IS NULL)) AND (NEW.target = OLD.target OR (NEW.target IS NULL AND OLD.target IS NULL)) AND (NEW.ground = OLD.ground OR (NEW.ground IS NULL AND OLD.ground IS NULL)) AND (NEW.received = OLD.received OR (NEW.received IS NULL AND OLD.received IS NULL))) IS NOT TRUE BEGIN SELECT RAISE(ABORT, 'refused by the ledger: what was asked cannot be changed'); END;
CREATE TRIGGER rule_request_due BEFORE UPDATE ON requests WHEN NEW.extended < OLD.extended OR NEW.due < OLD.due OR (NEW.extended = OLD.extended AND ((NEW.due = OLD.due OR (NEW.due IS NULL AND OLD.due IS NULL))) IS NOT TRUE) BEGIN SELECT RAISE(ABORT, 'refused by the ledger: a deadline moves by an extension only, and never back'); END;
CREATE TRIGGER rule_request_served BEFORE UPDATE ON requests WHEN NEW.state = OLD.state AND ((NEW.version = OLD.version OR (NEW.version IS NULL AND OLD.version IS NULL))) IS NOT TRUE BEGIN SELECT RAISE(ABORT, 'refused by the ledger: the version that served a request is set when it is done'); END;
CREATE TRIGGER rule_request_kept BEFORE DELETE ON requests BEGIN SELECT RAISE(ABORT, 'refused by the ledger: a request is never deleted'); END;
CREATE TRIGGER rule_version_begins BEFORE INSERT ON versions WHEN NEW.state <> 'current' OR NEW.number <> 1 + coalesce((SELECT max(number) FROM versions WHERE federation = NEW.federation), 0) OR coalesce(NEW.parent, 0) <> NEW.number - 1 BEGIN SELECT RAISE(ABORT, 'refused by the ledger: a version begins as the current one and follows the last'); END;
CREATE TRIGGER rule_version_moves BEFORE UPDATE ON versions WHEN NEW.state <> OLD.state AND NOT ((OLD.state = 'current' AND NEW.state IN ('superseded')) OR (OLD.state = 'superseded' AND NEW.state IN ('destroyed'))) BEGIN SELECT RAISE(ABORT, 'refused by the ledger: a version cannot go from this state to that one'); END;
CREATE TRIGGER rule_version_stays BEFORE UPDATE ON versions WHEN ((NEW.federation = OLD.federation OR (NEW.federation IS NULL AND OLD.federation IS NULL)) AND (NEW.number = OLD.number OR (NEW.number IS NULL AND OLD.number IS NULL)) AND (NEW.sha256 = OLD.sha256 OR (NEW.sha256 IS NULL AND OLD.sha256 IS NULL)) AND (NEW.parent = OLD.parent OR (NEW.parent IS NULL AND OLD.parent IS NULL)) AND (NEW.kind = OLD.kind OR (NEW.kind IS NULL AND OLD.kind IS NULL)) AND (NEW.published = OLD.published OR (NEW.published IS NULL AND OLD.published IS NULL)) AND (NEW.restores = OLD.restores OR (NEW.restores IS NULL AND OLD.restores IS NULL)) AND (NEW.method = OLD.method OR (NEW.method IS NULL AND OLD.method IS NULL)) AND (NEW.preset = OLD.preset OR (NEW.preset IS NULL AND OLD.preset IS NULL)) AND (NEW.settings = OLD.settings OR (NEW.settings IS NULL AND OLD.settings IS NULL)) AND (NEW.verdict = OLD.verdict OR (NEW.verdict IS NULL AND OLD.verdict IS NULL)) AND (NEW.accuracy_before = OLD.accuracy_before OR (NEW.accuracy_before IS NULL AND OLD.accuracy_before IS NULL)) AND (NEW.accuracy_after = OLD.accuracy_after OR (NEW.accuracy_after IS NULL AND OLD.accuracy_after IS NULL)) AND (NEW.cost = OLD.cost OR (NEW.cost IS NULL AND OLD.cost IS NULL)) AND (NEW.evidence = OLD.evidence OR (NEW.evidence IS NULL AND OLD.evidence IS NULL)) AND (NEW.report = OLD.report OR (NEW.report IS NULL AND OLD.report IS NULL))) IS NOT TRUE BEGIN SELECT RAISE(ABORT, 'refused by the ledger: a version cannot be changed'); END;
CREATE TRIGGER rule_version_kept BEFORE DELETE ON versions BEGIN SELECT RAISE(ABORT, 'refused by the ledger: a version is never deleted'); END;
CREATE TRIGGER rule_event_follows BEFORE INSERT ON events WHEN NOT EXISTS (SELECT 1 FROM head WHERE head.number = NEW.number - 1 AND head.hash = NEW.previous) BEGIN SELECT RAISE(ABORT, 'refused by the ledger: an event follows the head of the chain'); END;
CREATE TRIGGER rule_event_stays BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'refused by the ledger: an event is never changed'); END;
CREATE TRIGGER rule_event_kept BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'refused by the ledger: an event is never deleted'); END;
CREATE TRIGGER rule_head_begins BEFORE INSERT ON head WHEN NEW.number <> 0 OR NEW.hash <> '0000000000000000000000000000000000000000000000000000000000000000' BEGIN SELECT RAISE(ABORT, 'refused by the ledger: the chain begins at its beginning'); END;
CREATE TRIGGER rule_head_moves BEFORE UPDATE ON head WHEN NEW.number <> OLD.number + 1 OR ((NEW.id = OLD.id OR (NEW.id IS NULL AND OLD.id IS NULL)) AND (NEW.ledger = OLD.ledger OR (NEW.ledger IS NULL AND OLD.ledger IS NULL))) IS NOT TRUE OR NOT EXISTS (SELECT 1 FROM events WHERE events.number = NEW.number AND events.hash = NEW.hash) BEGIN SELECT RAISE(ABORT, 'refused by the ledger: the head is the newest event'); END;
CREATE TRIGGER rule_head_kept BEFORE DELETE ON head BEGIN SELECT RAISE(ABORT, 'refused by the ledger: the head is never deleted'); END;
CREATE TRIGGER rule_document_stays BEFORE UPDATE ON documents BEGIN SELECT RAISE(ABORT, 'refused by the ledger: a document is never changed'); END;
CREATE TRIGGER rule_document_kept BEFORE DELETE ON documents BEGIN SELECT RAISE(ABORT, 'refused by the ledger: a document is never deleted'); END;
CREATE TRIGGER rule_certificate_stays BEFORE UPDATE ON certificates WHEN ((NEW.sha256 = OLD.sha256 OR (NEW.sha256 IS NULL AND OLD.sha256 IS NULL)) AND (NEW.request = OLD.request OR (NEW.request IS NULL AND OLD.request IS NULL)) AND (NEW.federation = OLD.federation OR (NEW.federation IS NULL AND OLD.federation IS NULL)) AND (NEW.version = OLD.version OR (NEW.version IS NULL AND OLD.version IS NULL)) AND (NEW.key = OLD.key OR (NEW.key IS NULL AND OLD.key IS NULL)) AND (NEW.made = OLD.made OR (NEW.made IS NULL AND OLD.made IS NULL)) AND (NEW.content = OLD.content OR (NEW.content IS NULL AND OLD.content IS NULL))) IS NOT TRUE OR (OLD.withdrawn IS NOT NULL AND ((NEW.withdrawn = OLD.withdrawn OR (NEW.withdrawn IS NULL AND OLD.withdrawn IS NULL))) IS NOT TRUE) BEGIN SELECT RAISE(ABORT, 'refused by the ledger: a certificate can only be withdrawn, once'); END;
CREATE TRIGGER rule_certificate_kept BEFORE DELETE ON certificates BEGIN SELECT RAISE(ABORT, 'refused by the ledger: a certificate is never deleted'); END;
CREATE TRIGGER rule_key_stays BEFORE UPDATE ON keys WHEN ((NEW.id = OLD.id OR (NEW.id IS NULL AND OLD.id IS NULL)) AND (NEW.public = OLD.public OR (NEW.public IS NULL AND OLD.public IS NULL)) AND (NEW.made = OLD.made OR (NEW.made IS NULL AND OLD.made IS NULL))) IS NOT TRUE OR (OLD.retired IS NOT NULL AND ((NEW.retired = OLD.retired OR (NEW.retired IS NULL AND OLD.retired IS NULL))) IS NOT TRUE) BEGIN SELECT RAISE(ABORT, 'refused by the ledger: a key can only be retired, once'); END;
CREATE TRIGGER rule_key_kept BEFORE DELETE ON keys BEGIN SELECT RAISE(ABORT, 'refused by the ledger: a key is never deleted'); END;
CREATE TRIGGER rule_remains_stay BEFORE UPDATE ON remains WHEN ((NEW.federation = OLD.federation OR (NEW.federation IS NULL AND OLD.federation IS NULL)) AND (NEW.version = OLD.version OR (NEW.version IS NULL AND OLD.version IS NULL)) AND (NEW.path = OLD.path OR (NEW.path IS NULL AND OLD.path IS NULL)) AND (NEW.kind = OLD.kind OR (NEW.kind IS NULL AND OLD.kind IS NULL)) AND (NEW.sha256 = OLD.sha256 OR (NEW.sha256 IS NULL AND OLD.sha256 IS NULL))) IS NOT TRUE OR (OLD.destroyed IS NOT NULL AND ((NEW.destroyed = OLD.destroyed OR (NEW.destroyed IS NULL AND OLD.destroyed IS NULL))) IS NOT TRUE) BEGIN SELECT RAISE(ABORT, 'refused by the ledger: what remains of a version can only be destroyed, once'); END;
CREATE TRIGGER rule_remains_kept BEFORE DELETE ON remains BEGIN SELECT RAISE(ABORT, 'refused by the ledger: what remains of a version is never forgotten'); END;
CREATE TRIGGER rule_federation_kept BEFORE DELETE ON federations BEGIN SELECT RAISE(ABORT, 'refused by the ledger: a federation is never deleted'); END;
CREATE TRIGGER rule_account_kept BEFORE DELETE ON accounts BEGIN SELECT RAISE(ABORT, 'refused by the ledger: an account is disabled, never deleted'); END;
CREATE TRIGGER rule_event_is_head AFTER INSERT ON events BEGIN UPDATE head SET number = NEW.number, hash = NEW.hash WHERE id = 1; END;
COMMIT;
