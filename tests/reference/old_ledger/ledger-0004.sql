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
INSERT INTO "alembic_version" VALUES('0004');
CREATE TABLE candidates (
	claim VARCHAR(32) NOT NULL, 
	federation VARCHAR(64) NOT NULL, 
	parent INTEGER NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	result TEXT NOT NULL, 
	made VARCHAR(27) NOT NULL, guard VARCHAR(64), 
	PRIMARY KEY (claim), 
	FOREIGN KEY(federation) REFERENCES federations (name)
);
INSERT INTO "candidates" VALUES('92373c2aa63f45a49113da6bc5f14274','digits',5,'cb166578cc94878dbf7884d06108caff2241122f4131720fded8e4f4ebbd5ecf','{"level":"quick","model":"cb166578cc94878dbf7884d06108caff2241122f4131720fded8e4f4ebbd5ecf","remains":[],"values":{"accuracy_after":81.0,"accuracy_before":90.0,"cost":{"bytes":0,"gradient_evaluations":0.0,"peak_bytes":0,"seconds":0,"seconds_by_stage":{},"stored_bytes":0},"evidence":"bb7262e9261d2d85db8370566c0b950cc4038140715b7039439b1eb7d8ba3622","guard":"461e8614971d5b80c6dd19682a0ffba481db6abc6ba81269554f16345c0b594f","method":"fedaf","preset":"recommended","report":null,"settings":{"epochs":1},"verdict":"forgotten"},"verdict":{"oracles":2,"reasons":["No measure tells it from an oracle, and accuracy would have."],"with_oracle":true,"word":"forgotten"}}','2026-03-05T12:00:00.000128Z','461e8614971d5b80c6dd19682a0ffba481db6abc6ba81269554f16345c0b594f');
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
INSERT INTO "certificates" VALUES('45961a5da2c53894cf76bdedfb41c39738c7e206a418e258f939bb4f03805549','2348c5603aea41b3baea90da5c0ec7ec','digits',2,'eb4c796917a69186','2026-01-31T12:00:00.000030Z','{
 "schema": "fedforget/certificate/1",
 "statement": "This records what was asked, what was done and what was measured, as the ledger has it. The verdict is the audit''s and holds within what the audit can see, save ''exact'', which follows from how the model was made; it is no proof that nothing of the target is left.",
 "fedforget": "0.1.0",
 "ledger": "8068b162f58443ffab72341cacce87d3",
 "issued": "2026-01-31T12:00:00.000029Z",
 "request": {
  "id": "2348c5603aea41b3baea90da5c0ec7ec",
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
  "sha256": "8b4e7499b6f110f18f2acae376a07cb9c56ad4b8d70d32692648eebf475cbfa7",
  "guard": "595dbcadc48c09eb5c2e5d84fe2ba02512da8659c83bb3dd7e03edd6984e6104"
 },
 "method": {
  "name": "fedaf",
  "preset": "recommended",
  "settings": {
   "epochs": 1
  }
 },
 "evidence": {
  "sha256": "5a70b7ad0c5d3cf6a1b1f3a25a7162b33679c94d8eeaa81143bdbb0d14608b6f",
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
  "accuracy_after": 90
 },
 "decision": null,
 "trail": [
  {
   "number": 7,
   "at": "2026-01-31T12:00:00.000012Z",
   "actor": "ann",
   "kind": "received",
   "request": "2348c5603aea41b3baea90da5c0ec7ec",
   "body": {
    "asked_by": "ann",
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
   "previous": "8d9ca350b19696a4e3e1f0e20a0bdd828e6343319458915120df57a62d50aca3",
   "hash": "cd8a314dc7ad02b2ec67078457eab42263956092afa77c40f8e707950446c9e0"
  },
  {
   "number": 8,
   "at": "2026-01-31T12:00:00.000015Z",
   "actor": "oscar",
   "kind": "accepted",
   "request": "2348c5603aea41b3baea90da5c0ec7ec",
   "body": {
    "from": "received"
   },
   "previous": "cd8a314dc7ad02b2ec67078457eab42263956092afa77c40f8e707950446c9e0",
   "hash": "3ade0bc42ce90f77666a5c226179f1df12addfaa3d567d2ca224b8bf37558a06"
  },
  {
   "number": 9,
   "at": "2026-01-31T12:00:00.000018Z",
   "actor": "oscar",
   "kind": "queued",
   "request": "2348c5603aea41b3baea90da5c0ec7ec",
   "body": {
    "from": "accepted"
   },
   "previous": "3ade0bc42ce90f77666a5c226179f1df12addfaa3d567d2ca224b8bf37558a06",
   "hash": "ebc361835c57de3bf91e2e2c9a8238b47503a1a504b35ce66fd54d995b186328"
  },
  {
   "number": 10,
   "at": "2026-01-31T12:00:00.000021Z",
   "actor": "worker/first",
   "kind": "forgetting",
   "request": "2348c5603aea41b3baea90da5c0ec7ec",
   "body": {
    "claim": "35bf1db2c1c048ee89fb8c3ee1ffb850",
    "from": "queued",
    "version": 1
   },
   "previous": "ebc361835c57de3bf91e2e2c9a8238b47503a1a504b35ce66fd54d995b186328",
   "hash": "e23158ee2b0054b31d3c0810cf18e932dc65cac525ec2401fe34c36247d1e075"
  },
  {
   "number": 11,
   "at": "2026-01-31T12:00:00.000023Z",
   "actor": "worker/first",
   "kind": "auditing",
   "request": "2348c5603aea41b3baea90da5c0ec7ec",
   "body": {
    "from": "forgetting"
   },
   "previous": "e23158ee2b0054b31d3c0810cf18e932dc65cac525ec2401fe34c36247d1e075",
   "hash": "f05f31796354700445adc7f386d153d534d680c6fe8bf008bade82650e2effd0"
  },
  {
   "number": 13,
   "at": "2026-01-31T12:00:00.000028Z",
   "actor": "worker/first",
   "kind": "done",
   "request": "2348c5603aea41b3baea90da5c0ec7ec",
   "body": {
    "evidence": "5a70b7ad0c5d3cf6a1b1f3a25a7162b33679c94d8eeaa81143bdbb0d14608b6f",
    "from": "auditing",
    "guard": "595dbcadc48c09eb5c2e5d84fe2ba02512da8659c83bb3dd7e03edd6984e6104",
    "parent": 1,
    "parent_sha256": "88999c3038bb3948521976a04deea69327dbc42a0abb1a7807b56da6a068c267",
    "sha256": "8b4e7499b6f110f18f2acae376a07cb9c56ad4b8d70d32692648eebf475cbfa7",
    "verdict": "forgotten",
    "version": 2
   },
   "previous": "aa423364bcda34e3779fa2a86eb58006ecb07afe83e125e379e97422bf826e5f",
   "hash": "af57e526f7447f172a0d547193584b1872bec752d0ee6eb7bc21330416883f05"
  }
 ],
 "key": "eb4c796917a69186",
 "signature": "26ad3e36710b74d4ffef3630929e252e97fed8b74de8a9dcf0a989051458c8c846a5980a6cf3e3b3a01f95b887cafdf09e20de3eba1da0928b46850157347b0d"
}
',NULL);
INSERT INTO "certificates" VALUES('24f19e0cdb7ff9404ba22542ff432a71038ab8f6fba09d688bb1f8c33a6de9b6','83fb38995ecf4836bc30a05aa7b3d0f1','digits',3,'eb4c796917a69186','2026-02-01T12:00:00.000051Z','{
 "schema": "fedforget/certificate/1",
 "statement": "This records what was asked, what was done and what was measured, as the ledger has it. The verdict is the audit''s and holds within what the audit can see, save ''exact'', which follows from how the model was made; it is no proof that nothing of the target is left.",
 "fedforget": "0.1.0",
 "ledger": "8068b162f58443ffab72341cacce87d3",
 "issued": "2026-02-01T12:00:00.000050Z",
 "request": {
  "id": "83fb38995ecf4836bc30a05aa7b3d0f1",
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
  "sha256": "8b4e7499b6f110f18f2acae376a07cb9c56ad4b8d70d32692648eebf475cbfa7"
 },
 "after": {
  "version": 3,
  "sha256": "243d7f6348f89af484691567bd456ed180ff6035fcb6ad12045c6c706038109d",
  "guard": "ff2228b72b9e29596a350af572bbf0819af383330ff8e4ee33b305aaf009f3f3"
 },
 "method": {
  "name": "fedaf",
  "preset": "recommended",
  "settings": {
   "epochs": 1
  }
 },
 "evidence": {
  "sha256": "80dfd66bfb84ba7ee698f6776b0987822eb875f16a70b33705fe43cbf80b6bf0",
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
  "accuracy_after": 90
 },
 "decision": null,
 "trail": [
  {
   "number": 15,
   "at": "2026-02-01T12:00:00.000033Z",
   "actor": "ann",
   "kind": "received",
   "request": "83fb38995ecf4836bc30a05aa7b3d0f1",
   "body": {
    "asked_by": "ann",
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
   "previous": "9d86310e13c2938ce91654b034d633222d428630047bf10a597cb9a9a4b3aa51",
   "hash": "67a6da02223361a665e4ddffb1d2b866844cd31018b57cb139e00ab7a28cbcd3"
  },
  {
   "number": 16,
   "at": "2026-02-01T12:00:00.000036Z",
   "actor": "oscar",
   "kind": "accepted",
   "request": "83fb38995ecf4836bc30a05aa7b3d0f1",
   "body": {
    "from": "received"
   },
   "previous": "67a6da02223361a665e4ddffb1d2b866844cd31018b57cb139e00ab7a28cbcd3",
   "hash": "39e2c4ac42cc8b50f73062b8818e807104544b58dd9d84fc4c813bc87554aa01"
  },
  {
   "number": 17,
   "at": "2026-02-01T12:00:00.000039Z",
   "actor": "oscar",
   "kind": "queued",
   "request": "83fb38995ecf4836bc30a05aa7b3d0f1",
   "body": {
    "from": "accepted"
   },
   "previous": "39e2c4ac42cc8b50f73062b8818e807104544b58dd9d84fc4c813bc87554aa01",
   "hash": "b9ea327fcd49fc44ad57d9893f56925369d6f4b0c2a24b715bcde621e21eae98"
  },
  {
   "number": 18,
   "at": "2026-02-01T12:00:00.000042Z",
   "actor": "worker/first",
   "kind": "forgetting",
   "request": "83fb38995ecf4836bc30a05aa7b3d0f1",
   "body": {
    "claim": "79513ed416fc402db9683c849d5aa1ce",
    "from": "queued",
    "version": 2
   },
   "previous": "b9ea327fcd49fc44ad57d9893f56925369d6f4b0c2a24b715bcde621e21eae98",
   "hash": "cbc30128083f5257af252e63b56205c4d4e1e72c3492fb784bf5988e033ef733"
  },
  {
   "number": 19,
   "at": "2026-02-01T12:00:00.000044Z",
   "actor": "worker/first",
   "kind": "auditing",
   "request": "83fb38995ecf4836bc30a05aa7b3d0f1",
   "body": {
    "from": "forgetting"
   },
   "previous": "cbc30128083f5257af252e63b56205c4d4e1e72c3492fb784bf5988e033ef733",
   "hash": "2b01c666bd2a3409ab30b9117d593fe7f186b289b303d651b342e950a783464d"
  },
  {
   "number": 21,
   "at": "2026-02-01T12:00:00.000049Z",
   "actor": "worker/first",
   "kind": "done",
   "request": "83fb38995ecf4836bc30a05aa7b3d0f1",
   "body": {
    "evidence": "80dfd66bfb84ba7ee698f6776b0987822eb875f16a70b33705fe43cbf80b6bf0",
    "from": "auditing",
    "guard": "ff2228b72b9e29596a350af572bbf0819af383330ff8e4ee33b305aaf009f3f3",
    "parent": 2,
    "parent_sha256": "8b4e7499b6f110f18f2acae376a07cb9c56ad4b8d70d32692648eebf475cbfa7",
    "sha256": "243d7f6348f89af484691567bd456ed180ff6035fcb6ad12045c6c706038109d",
    "verdict": "forgotten",
    "version": 3
   },
   "previous": "cc30134eab785f210bdfc988a9c0d112d6037652aa1d26397a828935c55cd7a9",
   "hash": "742f3cd420abccdbad3727af07885c349c24966f8b0510ec03dfc4baaaf93c16"
  }
 ],
 "key": "eb4c796917a69186",
 "signature": "675bb7226d99a24030446db78d074b138c565734614ecfb41485fa51d6c1b6405d42070349ea84d52e907f50f6b7dfeb6beaf80b96dd97cd6738680455af070e"
}
',NULL);
INSERT INTO "certificates" VALUES('fd886a6d586b4d6d0f846e223ca0e248d2eb255439d445131eacd90b790ba3b2','06d539e98bf7495ab2878db7ec8e4f38','digits',4,'eb4c796917a69186','2026-03-05T12:00:00.000085Z','{
 "schema": "fedforget/certificate/1",
 "statement": "This records what was asked, what was done and what was measured, as the ledger has it. The verdict is the audit''s and holds within what the audit can see, save ''exact'', which follows from how the model was made; it is no proof that nothing of the target is left.",
 "fedforget": "0.1.0",
 "ledger": "8068b162f58443ffab72341cacce87d3",
 "issued": "2026-03-05T12:00:00.000084Z",
 "request": {
  "id": "06d539e98bf7495ab2878db7ec8e4f38",
  "federation": "digits",
  "subject": "case-3",
  "client": 0,
  "target": {
   "client": 0,
   "kind": "class",
   "label": 1
  },
  "describes": "class 1 of client 0",
  "ground": "objection",
  "received": "2026-03-05T12:00:00.000063Z",
  "due": "2026-04-05T12:00:00.000063Z"
 },
 "before": {
  "version": 3,
  "sha256": "243d7f6348f89af484691567bd456ed180ff6035fcb6ad12045c6c706038109d"
 },
 "after": {
  "version": 4,
  "sha256": "af0903bb9c3f6f83aa3613812be4bb97eeb1bd94a8c4122f17353ecbd7728c1b",
  "guard": "92efcd21ed2dcc334a59d4afbd6bd5b64fb127c0f054bf3453639e8ebf987b4d"
 },
 "method": {
  "name": "fedaf",
  "preset": "recommended",
  "settings": {
   "epochs": 1
  }
 },
 "evidence": {
  "sha256": "034cc655f63edff51f89da34749593f91490b436a99e6a320c8d268c01eee77e",
  "level": "quick"
 },
 "measured": {
  "verdict": {
   "oracles": 2,
   "reasons": [
    "accuracy is -40, an oracle''s is above -0.586 (p = 8e-07)."
   ],
   "with_oracle": true,
   "word": "over-forgotten"
  },
  "accuracy_before": 90,
  "accuracy_after": 90
 },
 "decision": {
  "officer": "oscar",
  "reason": "It is fine.",
  "held": "The audit says: over-forgotten."
 },
 "trail": [
  {
   "number": 27,
   "at": "2026-03-05T12:00:00.000064Z",
   "actor": "ann",
   "kind": "received",
   "request": "06d539e98bf7495ab2878db7ec8e4f38",
   "body": {
    "asked_by": "ann",
    "client": 0,
    "due": "2026-04-05T12:00:00.000063Z",
    "federation": "digits",
    "ground": "objection",
    "subject": "case-3",
    "target": {
     "client": 0,
     "kind": "class",
     "label": 1
    }
   },
   "previous": "1e5334ca06c4f02488f8f4b09ce62b6df839084dc952d4618d4b823d1fba6470",
   "hash": "b047a4ba1df021d9a72e7ae8d91d07766dd57cce58df57ef978cc995a2e933f3"
  },
  {
   "number": 28,
   "at": "2026-03-05T12:00:00.000067Z",
   "actor": "oscar",
   "kind": "accepted",
   "request": "06d539e98bf7495ab2878db7ec8e4f38",
   "body": {
    "from": "received"
   },
   "previous": "b047a4ba1df021d9a72e7ae8d91d07766dd57cce58df57ef978cc995a2e933f3",
   "hash": "6d9978d043f5f57fb1d7ea219b92b68803473921ba83bfb3ca3b63693d112f4a"
  },
  {
   "number": 29,
   "at": "2026-03-05T12:00:00.000070Z",
   "actor": "oscar",
   "kind": "queued",
   "request": "06d539e98bf7495ab2878db7ec8e4f38",
   "body": {
    "from": "accepted"
   },
   "previous": "6d9978d043f5f57fb1d7ea219b92b68803473921ba83bfb3ca3b63693d112f4a",
   "hash": "b653bcd3286ae9135e1dc5bbd7d38da0cbb32e4ffdf915360584c810e8523ccd"
  },
  {
   "number": 30,
   "at": "2026-03-05T12:00:00.000073Z",
   "actor": "worker/first",
   "kind": "forgetting",
   "request": "06d539e98bf7495ab2878db7ec8e4f38",
   "body": {
    "claim": "75c25c9e8c41446193481fecb30654d1",
    "from": "queued",
    "version": 3
   },
   "previous": "b653bcd3286ae9135e1dc5bbd7d38da0cbb32e4ffdf915360584c810e8523ccd",
   "hash": "3a86578cfad34274cd0e35a40e085b29c1335af3416716c053281a6d375d6178"
  },
  {
   "number": 31,
   "at": "2026-03-05T12:00:00.000075Z",
   "actor": "worker/first",
   "kind": "auditing",
   "request": "06d539e98bf7495ab2878db7ec8e4f38",
   "body": {
    "from": "forgetting"
   },
   "previous": "3a86578cfad34274cd0e35a40e085b29c1335af3416716c053281a6d375d6178",
   "hash": "0c9c22bd7a6278d00d4c74b2b2cf77e40c7aa8ebe3a1e58241e1398cdf28f94a"
  },
  {
   "number": 32,
   "at": "2026-03-05T12:00:00.000079Z",
   "actor": "worker/first",
   "kind": "deciding",
   "request": "06d539e98bf7495ab2878db7ec8e4f38",
   "body": {
    "evidence": "034cc655f63edff51f89da34749593f91490b436a99e6a320c8d268c01eee77e",
    "from": "auditing",
    "guard": "92efcd21ed2dcc334a59d4afbd6bd5b64fb127c0f054bf3453639e8ebf987b4d",
    "reason": "The audit says: over-forgotten.",
    "sha256": "af0903bb9c3f6f83aa3613812be4bb97eeb1bd94a8c4122f17353ecbd7728c1b",
    "verdict": "over-forgotten"
   },
   "previous": "0c9c22bd7a6278d00d4c74b2b2cf77e40c7aa8ebe3a1e58241e1398cdf28f94a",
   "hash": "7601f9f964d69c37dd49a57b9f0cdca0456e53167b68dfcbdbe8277fc401bca7"
  },
  {
   "number": 34,
   "at": "2026-03-05T12:00:00.000083Z",
   "actor": "oscar",
   "kind": "done",
   "request": "06d539e98bf7495ab2878db7ec8e4f38",
   "body": {
    "decision": {
     "held": "The audit says: over-forgotten.",
     "officer": "oscar",
     "reason": "It is fine."
    },
    "evidence": "034cc655f63edff51f89da34749593f91490b436a99e6a320c8d268c01eee77e",
    "from": "deciding",
    "guard": "92efcd21ed2dcc334a59d4afbd6bd5b64fb127c0f054bf3453639e8ebf987b4d",
    "parent": 3,
    "parent_sha256": "243d7f6348f89af484691567bd456ed180ff6035fcb6ad12045c6c706038109d",
    "sha256": "af0903bb9c3f6f83aa3613812be4bb97eeb1bd94a8c4122f17353ecbd7728c1b",
    "verdict": "over-forgotten",
    "version": 4
   },
   "previous": "e24768242efcaf192da0b57d8f721a386a84c43cfcb2247ff198a892594972c7",
   "hash": "53ea72a178e8261417c807591e181b5e8722dc36bbcd5ed98c3c6e26e6336769"
  }
 ],
 "key": "eb4c796917a69186",
 "signature": "de5efb476fa4c3401365d04ad09705c8ccea9b5120a211788bac786681b841df66a80e5cc1345faa23cb348240b62c0e8b271704987f3b124eae7b501104f307"
}
','2026-03-05T12:00:00.000107Z');
CREATE TABLE documents (
	sha256 VARCHAR(64) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	content TEXT NOT NULL, 
	made VARCHAR(27) NOT NULL, 
	PRIMARY KEY (sha256), 
	CONSTRAINT kind_is_known CHECK (kind IN ('evidence', 'report'))
);
INSERT INTO "documents" VALUES('5a70b7ad0c5d3cf6a1b1f3a25a7162b33679c94d8eeaa81143bdbb0d14608b6f','evidence','{
 "schema": "fedforget/evidence/2",
 "fedforget": "0.1.0",
 "created": "2026-11-18T22:15:55Z",
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
   "sha256": "8b4e7499b6f110f18f2acae376a07cb9c56ad4b8d70d32692648eebf475cbfa7",
   "guard": {
    "file": "guard.safetensors",
    "sha256": "595dbcadc48c09eb5c2e5d84fe2ba02512da8659c83bb3dd7e03edd6984e6104"
   }
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
 "checksum": "0492c3ee78b45dc509f616ab352a7582f126f8e56fd65d0f6a103892b630d4e6"
}
','2026-01-31T12:00:00.000024Z');
INSERT INTO "documents" VALUES('80dfd66bfb84ba7ee698f6776b0987822eb875f16a70b33705fe43cbf80b6bf0','evidence','{
 "schema": "fedforget/evidence/2",
 "fedforget": "0.1.0",
 "created": "2026-11-18T22:15:56Z",
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
   "sha256": "243d7f6348f89af484691567bd456ed180ff6035fcb6ad12045c6c706038109d",
   "guard": {
    "file": "guard.safetensors",
    "sha256": "ff2228b72b9e29596a350af572bbf0819af383330ff8e4ee33b305aaf009f3f3"
   }
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
 "checksum": "2cc5466e4b0fc2fcae0443819844bd6040872f47baaec84e27449537990d801a"
}
','2026-02-01T12:00:00.000045Z');
INSERT INTO "documents" VALUES('034cc655f63edff51f89da34749593f91490b436a99e6a320c8d268c01eee77e','evidence','{
 "schema": "fedforget/evidence/2",
 "fedforget": "0.1.0",
 "created": "2026-11-18T22:15:56Z",
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
   "sha256": "af0903bb9c3f6f83aa3613812be4bb97eeb1bd94a8c4122f17353ecbd7728c1b",
   "guard": {
    "file": "guard.safetensors",
    "sha256": "92efcd21ed2dcc334a59d4afbd6bd5b64fb127c0f054bf3453639e8ebf987b4d"
   }
  }
 },
 "readings": [
  {
   "name": "accuracy",
   "remembers": "high",
   "subject": {
    "value": -40.0,
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
  "word": "over-forgotten",
  "with_oracle": true,
  "oracles": 2,
  "reasons": [
   "accuracy is -40, an oracle''s is above -0.586 (p = 8e-07)."
  ],
  "would_change": "a model that does as well on the target as one that never saw the target",
  "findings": [
   {
    "name": "accuracy",
    "value": -40.0,
    "before": 66.0,
    "expected": 0.55,
    "low": -0.5863606258432108,
    "high": 1.686360625843211,
    "p_remembers": 0.9999992473167808,
    "p_over": 7.52683219196193e-07,
    "p_before": 2.220446049250313e-16,
    "says": "over-forgotten",
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
 "checksum": "f2de3ad3489e07f891dad5e123c4974c318d6e5c0fe7e2967fedb0461b789b70"
}
','2026-03-05T12:00:00.000076Z');
INSERT INTO "documents" VALUES('b14334b5a5509860a48de64d813d373cee57c48fe48b45ec1cc613df48bd775b','evidence','{
 "schema": "fedforget/evidence/2",
 "fedforget": "0.1.0",
 "created": "2026-11-18T22:15:56Z",
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
   "sha256": "30ac68171572aa3566599076cff43aaaf30751f67b48fe6f565e6fabdedf3eab",
   "guard": {
    "file": "guard.safetensors",
    "sha256": "0d9eeed645acf06abd3bf4dccab174d2ebe33c572f129453ef5df7a58b687170"
   }
  }
 },
 "readings": [
  {
   "name": "accuracy",
   "remembers": "high",
   "subject": {
    "value": -40.0,
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
  "word": "over-forgotten",
  "with_oracle": true,
  "oracles": 2,
  "reasons": [
   "accuracy is -40, an oracle''s is above -0.586 (p = 8e-07)."
  ],
  "would_change": "a model that does as well on the target as one that never saw the target",
  "findings": [
   {
    "name": "accuracy",
    "value": -40.0,
    "before": 66.0,
    "expected": 0.55,
    "low": -0.5863606258432108,
    "high": 1.686360625843211,
    "p_remembers": 0.9999992473167808,
    "p_over": 7.52683219196193e-07,
    "p_before": 2.220446049250313e-16,
    "says": "over-forgotten",
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
 "checksum": "f78ecb7807a9f96cce81635e6b8bbbae563a501d210041e09d495dce76e61889"
}
','2026-03-05T12:00:00.000100Z');
INSERT INTO "documents" VALUES('bb7262e9261d2d85db8370566c0b950cc4038140715b7039439b1eb7d8ba3622','evidence','{
 "schema": "fedforget/evidence/2",
 "fedforget": "0.1.0",
 "created": "2026-11-18T22:15:56Z",
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
   "sha256": "cb166578cc94878dbf7884d06108caff2241122f4131720fded8e4f4ebbd5ecf",
   "guard": {
    "file": "guard.safetensors",
    "sha256": "461e8614971d5b80c6dd19682a0ffba481db6abc6ba81269554f16345c0b594f"
   }
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
 "checksum": "0097a1f5c739b591ec57fc1b3379aed4ad5b34479e23adf58173ed6743ae8990"
}
','2026-03-05T12:00:00.000127Z');
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
INSERT INTO "events" VALUES(1,'2026-01-31T12:00:00.000001Z','system','ledger made',NULL,'{"ledger":"8068b162f58443ffab72341cacce87d3"}','0000000000000000000000000000000000000000000000000000000000000000','a0b82ab03f63f611cd0173f0eea1c8f9a9aafe49eb77bcec949d1c17a8a1fa7d');
INSERT INTO "events" VALUES(2,'2026-01-31T12:00:00.000003Z','system','key made',NULL,'{"key":"eb4c796917a69186","public":"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAAs6daq/W3oo/ukMDvxXk9NfyM5IZswpp1cJH2ZchinA=\n-----END PUBLIC KEY-----\n"}','a0b82ab03f63f611cd0173f0eea1c8f9a9aafe49eb77bcec949d1c17a8a1fa7d','07efb335b7f0bb47d3bc1f076294ee6a593b032355a7902efea337346bd480c3');
INSERT INTO "events" VALUES(3,'2026-01-31T12:00:00.000005Z','system','account added',NULL,'{"account":"ann","role":"requester","row":{"disabled":"74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b","identity":"74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b","made":"63a62a0e48aaca11192f77a2b7c846403dd749591b6ca232ac47a8ef820caee2","password":"74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b","role":"b2ffb86378db200bf038c2fa89689aeb21d7102da83ab27bfa0a1c914dbfb68f"}}','07efb335b7f0bb47d3bc1f076294ee6a593b032355a7902efea337346bd480c3','f71d76e4458f5766fe6cc5845bb417476a36f4f18ed5fc831cebc13ca780c143');
INSERT INTO "events" VALUES(4,'2026-01-31T12:00:00.000007Z','system','account added',NULL,'{"account":"oscar","role":"officer","row":{"disabled":"74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b","identity":"74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b","made":"509a02a6119205a4f147df9b7e727cc1e68870c3678a09fc206084f4b1c297f6","password":"74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b","role":"7fdc0e17c6e46a8a90e6e0db71f1f2ae7f16280168d0fb787323b0b4138db92a"}}','f71d76e4458f5766fe6cc5845bb417476a36f4f18ed5fc831cebc13ca780c143','133b00a5df612b1b28192a32a3d9a87fb4f180911ae5e49e51b9b7824d9a381f');
INSERT INTO "events" VALUES(5,'2026-01-31T12:00:00.000009Z','system','federation registered',NULL,'{"accuracy_limit":2.0,"audit_level":"quick","federation":"digits","keep_days":30,"kind":"local","method":"fedaf","place":"/nowhere","preset":"recommended","row":{"accuracy_limit":"d84bdb34d4eeef4034d77e5403f850e35bc4a51b1143e3a83510e1aaad839748","audit_level":"acdbec3949547a4c107071945745f0d95d7415e96fb27c3858c49e7e947023cf","description":"50e1f4749def6780b0de9537374f92bd86702b48f9d17902188fc8ffc5f7c745","keep_days":"26c9a96ce053a14dd88a71a4830c9cbed7e1fed7e3f3f8a0b0b6a58f3f0f02e6","kind":"ea17e25c6c7aa6ef9407f976a670e87e37bc7e2a86b7bd4a3305bb16f1ba6052","method":"8b44d3bf4c6358c9283d323f397974ecf00604e4684d8c0e653f7eeee0eed442","place":"e3cb1cdbe68817a88d10ec60acc3dd1bb8c0c9701609ce0c171d5d7d5f442ae9","preset":"f1af9a4d6117823003c08ca684f8d03d6449062c13f7be7ccfa03f4c7c6af559","registered":"fcebff221e5444773a5d8ae3b3165fdf405143b407e1d14c7ab5bbbdb67fcbad","settings":"c89a148be40e6752261e3038609a4b68de22fa3bfdaf32f884edffb8480b9bbe","together":"d0ff5974b6aa52cf562bea5921840c032a860a91a3512f7fe8f768f6bbe005f6"},"settings":{},"together":1}','133b00a5df612b1b28192a32a3d9a87fb4f180911ae5e49e51b9b7824d9a381f','8d858ff88af758e7a41b6cfff010900a114193e1ee3814f9283f079b0a9e0ce4');
INSERT INTO "events" VALUES(6,'2026-01-31T12:00:00.000010Z','system','version published',NULL,'{"federation":"digits","kind":"first","parent":null,"sha256":"88999c3038bb3948521976a04deea69327dbc42a0abb1a7807b56da6a068c267","version":1}','8d858ff88af758e7a41b6cfff010900a114193e1ee3814f9283f079b0a9e0ce4','8d9ca350b19696a4e3e1f0e20a0bdd828e6343319458915120df57a62d50aca3');
INSERT INTO "events" VALUES(7,'2026-01-31T12:00:00.000012Z','ann','received','2348c5603aea41b3baea90da5c0ec7ec','{"asked_by":"ann","client":0,"due":"2026-02-28T12:00:00.000011Z","federation":"digits","ground":"objection","subject":"case-1","target":{"client":0,"kind":"class","label":1}}','8d9ca350b19696a4e3e1f0e20a0bdd828e6343319458915120df57a62d50aca3','cd8a314dc7ad02b2ec67078457eab42263956092afa77c40f8e707950446c9e0');
INSERT INTO "events" VALUES(8,'2026-01-31T12:00:00.000015Z','oscar','accepted','2348c5603aea41b3baea90da5c0ec7ec','{"from":"received"}','cd8a314dc7ad02b2ec67078457eab42263956092afa77c40f8e707950446c9e0','3ade0bc42ce90f77666a5c226179f1df12addfaa3d567d2ca224b8bf37558a06');
INSERT INTO "events" VALUES(9,'2026-01-31T12:00:00.000018Z','oscar','queued','2348c5603aea41b3baea90da5c0ec7ec','{"from":"accepted"}','3ade0bc42ce90f77666a5c226179f1df12addfaa3d567d2ca224b8bf37558a06','ebc361835c57de3bf91e2e2c9a8238b47503a1a504b35ce66fd54d995b186328');
INSERT INTO "events" VALUES(10,'2026-01-31T12:00:00.000021Z','worker/first','forgetting','2348c5603aea41b3baea90da5c0ec7ec','{"claim":"35bf1db2c1c048ee89fb8c3ee1ffb850","from":"queued","version":1}','ebc361835c57de3bf91e2e2c9a8238b47503a1a504b35ce66fd54d995b186328','e23158ee2b0054b31d3c0810cf18e932dc65cac525ec2401fe34c36247d1e075');
INSERT INTO "events" VALUES(11,'2026-01-31T12:00:00.000023Z','worker/first','auditing','2348c5603aea41b3baea90da5c0ec7ec','{"from":"forgetting"}','e23158ee2b0054b31d3c0810cf18e932dc65cac525ec2401fe34c36247d1e075','f05f31796354700445adc7f386d153d534d680c6fe8bf008bade82650e2effd0');
INSERT INTO "events" VALUES(12,'2026-01-31T12:00:00.000026Z','worker/first','version published',NULL,'{"evidence":"5a70b7ad0c5d3cf6a1b1f3a25a7162b33679c94d8eeaa81143bdbb0d14608b6f","federation":"digits","guard":"595dbcadc48c09eb5c2e5d84fe2ba02512da8659c83bb3dd7e03edd6984e6104","kind":"forgotten","method":"fedaf","parent":1,"preset":"recommended","requests":["2348c5603aea41b3baea90da5c0ec7ec"],"sha256":"8b4e7499b6f110f18f2acae376a07cb9c56ad4b8d70d32692648eebf475cbfa7","verdict":"forgotten","version":2}','f05f31796354700445adc7f386d153d534d680c6fe8bf008bade82650e2effd0','aa423364bcda34e3779fa2a86eb58006ecb07afe83e125e379e97422bf826e5f');
INSERT INTO "events" VALUES(13,'2026-01-31T12:00:00.000028Z','worker/first','done','2348c5603aea41b3baea90da5c0ec7ec','{"evidence":"5a70b7ad0c5d3cf6a1b1f3a25a7162b33679c94d8eeaa81143bdbb0d14608b6f","from":"auditing","guard":"595dbcadc48c09eb5c2e5d84fe2ba02512da8659c83bb3dd7e03edd6984e6104","parent":1,"parent_sha256":"88999c3038bb3948521976a04deea69327dbc42a0abb1a7807b56da6a068c267","sha256":"8b4e7499b6f110f18f2acae376a07cb9c56ad4b8d70d32692648eebf475cbfa7","verdict":"forgotten","version":2}','aa423364bcda34e3779fa2a86eb58006ecb07afe83e125e379e97422bf826e5f','af57e526f7447f172a0d547193584b1872bec752d0ee6eb7bc21330416883f05');
INSERT INTO "events" VALUES(14,'2026-01-31T12:00:00.000031Z','worker/first','certified','2348c5603aea41b3baea90da5c0ec7ec','{"certificate":"45961a5da2c53894cf76bdedfb41c39738c7e206a418e258f939bb4f03805549","key":"eb4c796917a69186"}','af57e526f7447f172a0d547193584b1872bec752d0ee6eb7bc21330416883f05','9d86310e13c2938ce91654b034d633222d428630047bf10a597cb9a9a4b3aa51');
INSERT INTO "events" VALUES(15,'2026-02-01T12:00:00.000033Z','ann','received','83fb38995ecf4836bc30a05aa7b3d0f1','{"asked_by":"ann","client":0,"due":"2026-03-01T12:00:00.000032Z","federation":"digits","ground":"objection","subject":"case-2","target":{"client":0,"kind":"class","label":1}}','9d86310e13c2938ce91654b034d633222d428630047bf10a597cb9a9a4b3aa51','67a6da02223361a665e4ddffb1d2b866844cd31018b57cb139e00ab7a28cbcd3');
INSERT INTO "events" VALUES(16,'2026-02-01T12:00:00.000036Z','oscar','accepted','83fb38995ecf4836bc30a05aa7b3d0f1','{"from":"received"}','67a6da02223361a665e4ddffb1d2b866844cd31018b57cb139e00ab7a28cbcd3','39e2c4ac42cc8b50f73062b8818e807104544b58dd9d84fc4c813bc87554aa01');
INSERT INTO "events" VALUES(17,'2026-02-01T12:00:00.000039Z','oscar','queued','83fb38995ecf4836bc30a05aa7b3d0f1','{"from":"accepted"}','39e2c4ac42cc8b50f73062b8818e807104544b58dd9d84fc4c813bc87554aa01','b9ea327fcd49fc44ad57d9893f56925369d6f4b0c2a24b715bcde621e21eae98');
INSERT INTO "events" VALUES(18,'2026-02-01T12:00:00.000042Z','worker/first','forgetting','83fb38995ecf4836bc30a05aa7b3d0f1','{"claim":"79513ed416fc402db9683c849d5aa1ce","from":"queued","version":2}','b9ea327fcd49fc44ad57d9893f56925369d6f4b0c2a24b715bcde621e21eae98','cbc30128083f5257af252e63b56205c4d4e1e72c3492fb784bf5988e033ef733');
INSERT INTO "events" VALUES(19,'2026-02-01T12:00:00.000044Z','worker/first','auditing','83fb38995ecf4836bc30a05aa7b3d0f1','{"from":"forgetting"}','cbc30128083f5257af252e63b56205c4d4e1e72c3492fb784bf5988e033ef733','2b01c666bd2a3409ab30b9117d593fe7f186b289b303d651b342e950a783464d');
INSERT INTO "events" VALUES(20,'2026-02-01T12:00:00.000047Z','worker/first','version published',NULL,'{"evidence":"80dfd66bfb84ba7ee698f6776b0987822eb875f16a70b33705fe43cbf80b6bf0","federation":"digits","guard":"ff2228b72b9e29596a350af572bbf0819af383330ff8e4ee33b305aaf009f3f3","kind":"forgotten","method":"fedaf","parent":2,"preset":"recommended","requests":["83fb38995ecf4836bc30a05aa7b3d0f1"],"sha256":"243d7f6348f89af484691567bd456ed180ff6035fcb6ad12045c6c706038109d","verdict":"forgotten","version":3}','2b01c666bd2a3409ab30b9117d593fe7f186b289b303d651b342e950a783464d','cc30134eab785f210bdfc988a9c0d112d6037652aa1d26397a828935c55cd7a9');
INSERT INTO "events" VALUES(21,'2026-02-01T12:00:00.000049Z','worker/first','done','83fb38995ecf4836bc30a05aa7b3d0f1','{"evidence":"80dfd66bfb84ba7ee698f6776b0987822eb875f16a70b33705fe43cbf80b6bf0","from":"auditing","guard":"ff2228b72b9e29596a350af572bbf0819af383330ff8e4ee33b305aaf009f3f3","parent":2,"parent_sha256":"8b4e7499b6f110f18f2acae376a07cb9c56ad4b8d70d32692648eebf475cbfa7","sha256":"243d7f6348f89af484691567bd456ed180ff6035fcb6ad12045c6c706038109d","verdict":"forgotten","version":3}','cc30134eab785f210bdfc988a9c0d112d6037652aa1d26397a828935c55cd7a9','742f3cd420abccdbad3727af07885c349c24966f8b0510ec03dfc4baaaf93c16');
INSERT INTO "events" VALUES(22,'2026-02-01T12:00:00.000052Z','worker/first','certified','83fb38995ecf4836bc30a05aa7b3d0f1','{"certificate":"24f19e0cdb7ff9404ba22542ff432a71038ab8f6fba09d688bb1f8c33a6de9b6","key":"eb4c796917a69186"}','742f3cd420abccdbad3727af07885c349c24966f8b0510ec03dfc4baaaf93c16','a521fa1e643d6506d5db713c8630438e57eb1f21de6a193132deb775e350b31c');
INSERT INTO "events" VALUES(23,'2026-03-04T12:00:00.000055Z','system','destruction announced',NULL,'{"due":"2026-03-02T12:00:00.000025Z","federation":"digits","sha256":"88999c3038bb3948521976a04deea69327dbc42a0abb1a7807b56da6a068c267","version":1}','a521fa1e643d6506d5db713c8630438e57eb1f21de6a193132deb775e350b31c','adfa1a693d8274c7128e6994d22987682f7b613c1fe243edb8aefb8de97b11c0');
INSERT INTO "events" VALUES(24,'2026-03-04T12:00:00.000056Z','system','destruction announced',NULL,'{"due":"2026-03-03T12:00:00.000046Z","federation":"digits","sha256":"8b4e7499b6f110f18f2acae376a07cb9c56ad4b8d70d32692648eebf475cbfa7","version":2}','adfa1a693d8274c7128e6994d22987682f7b613c1fe243edb8aefb8de97b11c0','aa357e9064d90f9b0f6a83c2664e80d6b988864a96365dde37481b39273a8e86');
INSERT INTO "events" VALUES(25,'2026-03-05T12:00:00.000060Z','system','destroyed',NULL,'{"federation":"digits","remains":[],"sha256":"88999c3038bb3948521976a04deea69327dbc42a0abb1a7807b56da6a068c267","version":1}','aa357e9064d90f9b0f6a83c2664e80d6b988864a96365dde37481b39273a8e86','84133b411cafaf91241ebf2d48024085a8bb08f8c198a7443ab0e9b03fd40077');
INSERT INTO "events" VALUES(26,'2026-03-05T12:00:00.000062Z','system','destroyed',NULL,'{"federation":"digits","guard":"595dbcadc48c09eb5c2e5d84fe2ba02512da8659c83bb3dd7e03edd6984e6104","remains":[],"sha256":"8b4e7499b6f110f18f2acae376a07cb9c56ad4b8d70d32692648eebf475cbfa7","version":2}','84133b411cafaf91241ebf2d48024085a8bb08f8c198a7443ab0e9b03fd40077','1e5334ca06c4f02488f8f4b09ce62b6df839084dc952d4618d4b823d1fba6470');
INSERT INTO "events" VALUES(27,'2026-03-05T12:00:00.000064Z','ann','received','06d539e98bf7495ab2878db7ec8e4f38','{"asked_by":"ann","client":0,"due":"2026-04-05T12:00:00.000063Z","federation":"digits","ground":"objection","subject":"case-3","target":{"client":0,"kind":"class","label":1}}','1e5334ca06c4f02488f8f4b09ce62b6df839084dc952d4618d4b823d1fba6470','b047a4ba1df021d9a72e7ae8d91d07766dd57cce58df57ef978cc995a2e933f3');
INSERT INTO "events" VALUES(28,'2026-03-05T12:00:00.000067Z','oscar','accepted','06d539e98bf7495ab2878db7ec8e4f38','{"from":"received"}','b047a4ba1df021d9a72e7ae8d91d07766dd57cce58df57ef978cc995a2e933f3','6d9978d043f5f57fb1d7ea219b92b68803473921ba83bfb3ca3b63693d112f4a');
INSERT INTO "events" VALUES(29,'2026-03-05T12:00:00.000070Z','oscar','queued','06d539e98bf7495ab2878db7ec8e4f38','{"from":"accepted"}','6d9978d043f5f57fb1d7ea219b92b68803473921ba83bfb3ca3b63693d112f4a','b653bcd3286ae9135e1dc5bbd7d38da0cbb32e4ffdf915360584c810e8523ccd');
INSERT INTO "events" VALUES(30,'2026-03-05T12:00:00.000073Z','worker/first','forgetting','06d539e98bf7495ab2878db7ec8e4f38','{"claim":"75c25c9e8c41446193481fecb30654d1","from":"queued","version":3}','b653bcd3286ae9135e1dc5bbd7d38da0cbb32e4ffdf915360584c810e8523ccd','3a86578cfad34274cd0e35a40e085b29c1335af3416716c053281a6d375d6178');
INSERT INTO "events" VALUES(31,'2026-03-05T12:00:00.000075Z','worker/first','auditing','06d539e98bf7495ab2878db7ec8e4f38','{"from":"forgetting"}','3a86578cfad34274cd0e35a40e085b29c1335af3416716c053281a6d375d6178','0c9c22bd7a6278d00d4c74b2b2cf77e40c7aa8ebe3a1e58241e1398cdf28f94a');
INSERT INTO "events" VALUES(32,'2026-03-05T12:00:00.000079Z','worker/first','deciding','06d539e98bf7495ab2878db7ec8e4f38','{"evidence":"034cc655f63edff51f89da34749593f91490b436a99e6a320c8d268c01eee77e","from":"auditing","guard":"92efcd21ed2dcc334a59d4afbd6bd5b64fb127c0f054bf3453639e8ebf987b4d","reason":"The audit says: over-forgotten.","sha256":"af0903bb9c3f6f83aa3613812be4bb97eeb1bd94a8c4122f17353ecbd7728c1b","verdict":"over-forgotten"}','0c9c22bd7a6278d00d4c74b2b2cf77e40c7aa8ebe3a1e58241e1398cdf28f94a','7601f9f964d69c37dd49a57b9f0cdca0456e53167b68dfcbdbe8277fc401bca7');
INSERT INTO "events" VALUES(33,'2026-03-05T12:00:00.000081Z','oscar','version published',NULL,'{"evidence":"034cc655f63edff51f89da34749593f91490b436a99e6a320c8d268c01eee77e","federation":"digits","guard":"92efcd21ed2dcc334a59d4afbd6bd5b64fb127c0f054bf3453639e8ebf987b4d","kind":"forgotten","method":"fedaf","parent":3,"preset":"recommended","requests":["06d539e98bf7495ab2878db7ec8e4f38"],"sha256":"af0903bb9c3f6f83aa3613812be4bb97eeb1bd94a8c4122f17353ecbd7728c1b","verdict":"over-forgotten","version":4}','7601f9f964d69c37dd49a57b9f0cdca0456e53167b68dfcbdbe8277fc401bca7','e24768242efcaf192da0b57d8f721a386a84c43cfcb2247ff198a892594972c7');
INSERT INTO "events" VALUES(34,'2026-03-05T12:00:00.000083Z','oscar','done','06d539e98bf7495ab2878db7ec8e4f38','{"decision":{"held":"The audit says: over-forgotten.","officer":"oscar","reason":"It is fine."},"evidence":"034cc655f63edff51f89da34749593f91490b436a99e6a320c8d268c01eee77e","from":"deciding","guard":"92efcd21ed2dcc334a59d4afbd6bd5b64fb127c0f054bf3453639e8ebf987b4d","parent":3,"parent_sha256":"243d7f6348f89af484691567bd456ed180ff6035fcb6ad12045c6c706038109d","sha256":"af0903bb9c3f6f83aa3613812be4bb97eeb1bd94a8c4122f17353ecbd7728c1b","verdict":"over-forgotten","version":4}','e24768242efcaf192da0b57d8f721a386a84c43cfcb2247ff198a892594972c7','53ea72a178e8261417c807591e181b5e8722dc36bbcd5ed98c3c6e26e6336769');
INSERT INTO "events" VALUES(35,'2026-03-05T12:00:00.000086Z','oscar','certified','06d539e98bf7495ab2878db7ec8e4f38','{"certificate":"fd886a6d586b4d6d0f846e223ca0e248d2eb255439d445131eacd90b790ba3b2","key":"eb4c796917a69186"}','53ea72a178e8261417c807591e181b5e8722dc36bbcd5ed98c3c6e26e6336769','f8b7af9d932e0e316b3a6f3de39adf2ddafa0f23ffeebabe9c752fbaf4ec4d51');
INSERT INTO "events" VALUES(36,'2026-03-05T12:00:00.000088Z','ann','received','ea347868c2094e8ca966cd30036c238e','{"asked_by":"ann","client":0,"due":"2026-04-05T12:00:00.000087Z","federation":"digits","ground":"objection","subject":"case-4","target":{"client":0,"kind":"class","label":1}}','f8b7af9d932e0e316b3a6f3de39adf2ddafa0f23ffeebabe9c752fbaf4ec4d51','ee6cc5901a5641890b6f9a5653abd754d84c2489485155ae9435fbf7e65d1ca8');
INSERT INTO "events" VALUES(37,'2026-03-05T12:00:00.000091Z','oscar','accepted','ea347868c2094e8ca966cd30036c238e','{"from":"received"}','ee6cc5901a5641890b6f9a5653abd754d84c2489485155ae9435fbf7e65d1ca8','301943074b4f6e4af78fcce184d8e91595cafe37fc3de663cf6759b0a74cc2c9');
INSERT INTO "events" VALUES(38,'2026-03-05T12:00:00.000094Z','oscar','queued','ea347868c2094e8ca966cd30036c238e','{"from":"accepted"}','301943074b4f6e4af78fcce184d8e91595cafe37fc3de663cf6759b0a74cc2c9','6f95bee4a8bb3719b13a44ec60c03fff1b2337cd9df99f8b0e2e4089d0fe5578');
INSERT INTO "events" VALUES(39,'2026-03-05T12:00:00.000097Z','worker/first','forgetting','ea347868c2094e8ca966cd30036c238e','{"claim":"b091591bf31243a6b60591dbdfc1f282","from":"queued","version":4}','6f95bee4a8bb3719b13a44ec60c03fff1b2337cd9df99f8b0e2e4089d0fe5578','1741ea52a77f1ef55da259d35a616af01296eb0a7c654ff0321779562fce2a84');
INSERT INTO "events" VALUES(40,'2026-03-05T12:00:00.000099Z','worker/first','auditing','ea347868c2094e8ca966cd30036c238e','{"from":"forgetting"}','1741ea52a77f1ef55da259d35a616af01296eb0a7c654ff0321779562fce2a84','cb3f9a206bda494c33b584cffc14a7a76d2fa5ec8ad7135d3e740c442c159077');
INSERT INTO "events" VALUES(41,'2026-03-05T12:00:00.000103Z','worker/first','deciding','ea347868c2094e8ca966cd30036c238e','{"evidence":"b14334b5a5509860a48de64d813d373cee57c48fe48b45ec1cc613df48bd775b","from":"auditing","guard":"0d9eeed645acf06abd3bf4dccab174d2ebe33c572f129453ef5df7a58b687170","reason":"The audit says: over-forgotten.","sha256":"30ac68171572aa3566599076cff43aaaf30751f67b48fe6f565e6fabdedf3eab","verdict":"over-forgotten"}','cb3f9a206bda494c33b584cffc14a7a76d2fa5ec8ad7135d3e740c442c159077','155d38eb513ea6aaa66c9d05baf1c6f772191956a97516165abfa63d0da8ccec');
INSERT INTO "events" VALUES(42,'2026-03-05T12:00:00.000105Z','oscar','failed','ea347868c2094e8ca966cd30036c238e','{"destroyed":["0d9eeed645acf06abd3bf4dccab174d2ebe33c572f129453ef5df7a58b687170","30ac68171572aa3566599076cff43aaaf30751f67b48fe6f565e6fabdedf3eab"],"from":"deciding","reason":"oscar rejected the result: It is not."}','155d38eb513ea6aaa66c9d05baf1c6f772191956a97516165abfa63d0da8ccec','ab10386ec3f99d3b4993445806b93ee9cc7c5ac17a1cfc43aab1551028d5a4f0');
INSERT INTO "events" VALUES(43,'2026-03-05T12:00:00.000108Z','oscar','rolled back',NULL,'{"evidence":null,"federation":"digits","guard":"ff2228b72b9e29596a350af572bbf0819af383330ff8e4ee33b305aaf009f3f3","kind":"rollback","method":null,"parent":4,"preset":null,"reason":"broken","restores":3,"sha256":"243d7f6348f89af484691567bd456ed180ff6035fcb6ad12045c6c706038109d","undone":["06d539e98bf7495ab2878db7ec8e4f38"],"verdict":null,"version":5}','ab10386ec3f99d3b4993445806b93ee9cc7c5ac17a1cfc43aab1551028d5a4f0','6827ddbb77802e3c2a600649beb57a4206d7b57d7234d89f2b97b43abd92786f');
INSERT INTO "events" VALUES(44,'2026-03-05T12:00:00.000110Z','oscar','failed','06d539e98bf7495ab2878db7ec8e4f38','{"from":"done","reason":"Version 4 was rolled back to version 3: broken"}','6827ddbb77802e3c2a600649beb57a4206d7b57d7234d89f2b97b43abd92786f','203593d8db680e640805052fd132b59914733e280334c8090d06a855557fa705');
INSERT INTO "events" VALUES(45,'2026-03-05T12:00:00.000112Z','system','key retired',NULL,'{"key":"eb4c796917a69186"}','203593d8db680e640805052fd132b59914733e280334c8090d06a855557fa705','3a49f0da2673a284ea1ff5a46d164d70827f5699ea18c0803aa61a96215c1283');
INSERT INTO "events" VALUES(46,'2026-03-05T12:00:00.000113Z','system','key made',NULL,'{"key":"97b7efed48bbd598","public":"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAd1FiOmNgXrl7+7mmZOoBvtzGzzB3OkQYa6fSwFpTBTY=\n-----END PUBLIC KEY-----\n"}','3a49f0da2673a284ea1ff5a46d164d70827f5699ea18c0803aa61a96215c1283','a167fc715f32af7979797018b1c741fcfd5bd4ed23cd9a722a6434fcaa04935e');
INSERT INTO "events" VALUES(47,'2026-03-05T12:00:00.000115Z','ann','received','2f3f1e394cc44b92a503fd292e01b009','{"asked_by":"ann","client":0,"due":"2026-04-05T12:00:00.000114Z","federation":"digits","ground":"objection","subject":"case-5","target":{"client":0,"kind":"class","label":1}}','a167fc715f32af7979797018b1c741fcfd5bd4ed23cd9a722a6434fcaa04935e','eb5637b440023362352fd0c4570cb3843fe8356fb5d9c1af284f91355d9d6d23');
INSERT INTO "events" VALUES(48,'2026-03-05T12:00:00.000118Z','oscar','accepted','2f3f1e394cc44b92a503fd292e01b009','{"from":"received"}','eb5637b440023362352fd0c4570cb3843fe8356fb5d9c1af284f91355d9d6d23','ed03769ae9e4a0c151339f79063966110586927c793241c077a6a3ec5b2df6de');
INSERT INTO "events" VALUES(49,'2026-03-05T12:00:00.000121Z','oscar','queued','2f3f1e394cc44b92a503fd292e01b009','{"from":"accepted"}','ed03769ae9e4a0c151339f79063966110586927c793241c077a6a3ec5b2df6de','047e390fe23a83f5a8d3fca4afc986d1808fa679f3af8f84b4f42b555360a28a');
INSERT INTO "events" VALUES(50,'2026-03-05T12:00:00.000124Z','worker/first','forgetting','2f3f1e394cc44b92a503fd292e01b009','{"claim":"92373c2aa63f45a49113da6bc5f14274","from":"queued","version":5}','047e390fe23a83f5a8d3fca4afc986d1808fa679f3af8f84b4f42b555360a28a','a9f614584baeae8c62c0f939d5a6db29f2bcdb2ab3283cbe618e3e55d645e3e8');
INSERT INTO "events" VALUES(51,'2026-03-05T12:00:00.000126Z','worker/first','auditing','2f3f1e394cc44b92a503fd292e01b009','{"from":"forgetting"}','a9f614584baeae8c62c0f939d5a6db29f2bcdb2ab3283cbe618e3e55d645e3e8','2243162a547400537c2b0a9948bfae720f72b47ab64b4ac79f4464a75d0b5684');
INSERT INTO "events" VALUES(52,'2026-03-05T12:00:00.000130Z','worker/first','deciding','2f3f1e394cc44b92a503fd292e01b009','{"evidence":"bb7262e9261d2d85db8370566c0b950cc4038140715b7039439b1eb7d8ba3622","from":"auditing","guard":"461e8614971d5b80c6dd19682a0ffba481db6abc6ba81269554f16345c0b594f","reason":"The retained accuracy is 9.00 points below the first version''s; the limit is 2.","sha256":"cb166578cc94878dbf7884d06108caff2241122f4131720fded8e4f4ebbd5ecf","verdict":"forgotten"}','2243162a547400537c2b0a9948bfae720f72b47ab64b4ac79f4464a75d0b5684','f1c4f891f7229ebb8ab4eefe5f8834cba98069f54262026cf676caeeff9e4012');
INSERT INTO "events" VALUES(53,'2026-03-05T12:00:00.000132Z','ann','received','a41294e42ffa409a82d9fd68bfc8c3fb','{"asked_by":"ann","client":0,"due":"2026-04-05T12:00:00.000131Z","federation":"digits","ground":"objection","subject":"case-6","target":{"client":0,"kind":"class","label":1}}','f1c4f891f7229ebb8ab4eefe5f8834cba98069f54262026cf676caeeff9e4012','086a0d77715d71255505edf7e33972167f9e8c597c1b32b51b5665ce1b2635a5');
INSERT INTO "events" VALUES(54,'2026-03-05T12:00:00.000135Z','oscar','accepted','a41294e42ffa409a82d9fd68bfc8c3fb','{"from":"received"}','086a0d77715d71255505edf7e33972167f9e8c597c1b32b51b5665ce1b2635a5','e59cd074f24c3b4b7e089497d6f41e489dbeb59822404d1e69d182aaf5ec64df');
INSERT INTO "events" VALUES(55,'2026-03-05T12:00:00.000138Z','oscar','queued','a41294e42ffa409a82d9fd68bfc8c3fb','{"from":"accepted"}','e59cd074f24c3b4b7e089497d6f41e489dbeb59822404d1e69d182aaf5ec64df','d03844dfcd4623bf55563a53e4317f55a36fab97bc2073cea21ebb23b8262bff');
INSERT INTO "events" VALUES(56,'2026-03-05T12:00:00.000140Z','ann','token made',NULL,'{"account":"ann","label":"cron","row":{"account":"cec78459472eed8b9f4625f155fd705ad906eae5352a769f5c9a4a075ab7e75e","expires":"466ba882be1719ca9bd64d47caaafc1098f71c1896adbd201b36c3f60165bd4c","hash":"9c88a202238016d5c9af3f0fa73aded04215e12388fc1bec0dec402d0a7e3960","label":"d7e1c925930c3516722fc8eca11a66df9d2d85617444afff2ec08b7e0ffe87b2","made":"5fc3bff45f03a56a5c8fb551b3049943c88bbeb7f1422d92871d8eaca7b6bc87","revoked":"74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"},"token":"1ff8750cda125152"}','d03844dfcd4623bf55563a53e4317f55a36fab97bc2073cea21ebb23b8262bff','af4931fa220294a45cdd5667b928625dad76a276760b4f1e76ea68bce5ee14d9');
INSERT INTO "events" VALUES(57,'2026-03-05T12:00:00.000141Z','system','console settings',NULL,'{"settings":{"title":"Forgetting"}}','af4931fa220294a45cdd5667b928625dad76a276760b4f1e76ea68bce5ee14d9','9de9e066bc1928b332665e76c840f3270b6f880c2c5a13515e46220f4dd9e65c');
INSERT INTO "events" VALUES(58,'2026-03-05T12:00:00.000143Z','system','backup made',NULL,'{"hash":"9de9e066bc1928b332665e76c840f3270b6f880c2c5a13515e46220f4dd9e65c","keys":false,"number":57}','9de9e066bc1928b332665e76c840f3270b6f880c2c5a13515e46220f4dd9e65c','7e179724be8699113a7f58d2bbb0fdc8fe6476534c2a2005a75107f3cac52219');
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
INSERT INTO "head" VALUES(1,'8068b162f58443ffab72341cacce87d3',58,'7e179724be8699113a7f58d2bbb0fdc8fe6476534c2a2005a75107f3cac52219');
CREATE TABLE keys (
	id VARCHAR(16) NOT NULL, 
	public TEXT NOT NULL, 
	made VARCHAR(27) NOT NULL, 
	retired VARCHAR(27), 
	PRIMARY KEY (id)
);
INSERT INTO "keys" VALUES('eb4c796917a69186','-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAAs6daq/W3oo/ukMDvxXk9NfyM5IZswpp1cJH2ZchinA=
-----END PUBLIC KEY-----
','2026-01-31T12:00:00.000002Z','2026-03-05T12:00:00.000111Z');
INSERT INTO "keys" VALUES('97b7efed48bbd598','-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAd1FiOmNgXrl7+7mmZOoBvtzGzzB3OkQYa6fSwFpTBTY=
-----END PUBLIC KEY-----
','2026-03-05T12:00:00.000111Z',NULL);
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
INSERT INTO "requests" VALUES('2348c5603aea41b3baea90da5c0ec7ec','aebd92576b2191d1aa64e28e3a87415720c7a385a6fca6501928851fe7227195','digits','ann','case-1',0,'{"client":0,"kind":"class","label":1}','objection','2026-01-31T12:00:00.000011Z','2026-02-28T12:00:00.000011Z',0,NULL,'done',NULL,'2026-01-31T12:00:00.000027Z',1,0,'2026-01-31T12:00:00.000016Z','35bf1db2c1c048ee89fb8c3ee1ffb850','first',2,'5a70b7ad0c5d3cf6a1b1f3a25a7162b33679c94d8eeaa81143bdbb0d14608b6f',NULL);
INSERT INTO "requests" VALUES('83fb38995ecf4836bc30a05aa7b3d0f1','6b3473ac6993019ad080ce2113fc7022fc2c0f507682619f5c79c8e1a6973033','digits','ann','case-2',0,'{"client":0,"kind":"class","label":1}','objection','2026-02-01T12:00:00.000032Z','2026-03-01T12:00:00.000032Z',0,NULL,'done',NULL,'2026-02-01T12:00:00.000048Z',1,0,'2026-02-01T12:00:00.000037Z','79513ed416fc402db9683c849d5aa1ce','first',3,'80dfd66bfb84ba7ee698f6776b0987822eb875f16a70b33705fe43cbf80b6bf0',NULL);
INSERT INTO "requests" VALUES('06d539e98bf7495ab2878db7ec8e4f38','f118a3e3edf707bb2b5c4396b84b55c3ecd3e419dde0e29a38f99c878019393d','digits','ann','case-3',0,'{"client":0,"kind":"class","label":1}','objection','2026-03-05T12:00:00.000063Z','2026-04-05T12:00:00.000063Z',0,NULL,'failed','Version 4 was rolled back to version 3: broken','2026-03-05T12:00:00.000109Z',1,0,'2026-03-05T12:00:00.000068Z','75c25c9e8c41446193481fecb30654d1','first',NULL,'034cc655f63edff51f89da34749593f91490b436a99e6a320c8d268c01eee77e',NULL);
INSERT INTO "requests" VALUES('ea347868c2094e8ca966cd30036c238e','e393c5f786f5fbd472a1e965edd562fdd1244a0d945d19d9f991d03172f78a5f','digits','ann','case-4',0,'{"client":0,"kind":"class","label":1}','objection','2026-03-05T12:00:00.000087Z','2026-04-05T12:00:00.000087Z',0,NULL,'failed','oscar rejected the result: It is not.','2026-03-05T12:00:00.000104Z',1,0,'2026-03-05T12:00:00.000092Z','b091591bf31243a6b60591dbdfc1f282','first',NULL,'b14334b5a5509860a48de64d813d373cee57c48fe48b45ec1cc613df48bd775b',NULL);
INSERT INTO "requests" VALUES('2f3f1e394cc44b92a503fd292e01b009','344fbff5bb1e2faa54086b263d1a930260431c5b33b83ddf5d29c1b4ecd56b82','digits','ann','case-5',0,'{"client":0,"kind":"class","label":1}','objection','2026-03-05T12:00:00.000114Z','2026-04-05T12:00:00.000114Z',0,NULL,'deciding','The retained accuracy is 9.00 points below the first version''s; the limit is 2.','2026-03-05T12:00:00.000129Z',1,0,'2026-03-05T12:00:00.000119Z','92373c2aa63f45a49113da6bc5f14274','first',NULL,'bb7262e9261d2d85db8370566c0b950cc4038140715b7039439b1eb7d8ba3622',NULL);
INSERT INTO "requests" VALUES('a41294e42ffa409a82d9fd68bfc8c3fb','fbedcdff3e20b4cab6644a5d4290971a63125d8d4088146345ea1140b8349cd4','digits','ann','case-6',0,'{"client":0,"kind":"class","label":1}','objection','2026-03-05T12:00:00.000131Z','2026-04-05T12:00:00.000131Z',0,NULL,'queued',NULL,'2026-03-05T12:00:00.000137Z',0,0,'2026-03-05T12:00:00.000136Z',NULL,NULL,NULL,NULL,NULL);
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
INSERT INTO "tokens" VALUES('1ff8750cda125152','4f35c6d64cbcc813b3847a8989c2bfbc04f69066aabc8ae35ae1b1a81bcb099d','ann','cron','2026-03-05T12:00:00.000139Z','2026-06-03T12:00:00.000139Z',NULL);
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
	report VARCHAR(64), guard VARCHAR(64), 
	PRIMARY KEY (federation, number), 
	CONSTRAINT kind_is_known CHECK (kind IN ('first', 'forgotten', 'rollback')), 
	CONSTRAINT state_is_known CHECK (state IN ('current', 'superseded', 'destroyed')), 
	FOREIGN KEY(evidence) REFERENCES documents (sha256), 
	FOREIGN KEY(federation, parent) REFERENCES versions (federation, number), 
	FOREIGN KEY(federation) REFERENCES federations (name), 
	FOREIGN KEY(report) REFERENCES documents (sha256)
);
INSERT INTO "versions" VALUES('digits',1,'88999c3038bb3948521976a04deea69327dbc42a0abb1a7807b56da6a068c267',NULL,'first','destroyed','2026-01-31T12:00:00.000008Z','2026-01-31T12:00:00.000025Z','2026-03-05T12:00:00.000059Z',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "versions" VALUES('digits',2,'8b4e7499b6f110f18f2acae376a07cb9c56ad4b8d70d32692648eebf475cbfa7',1,'forgotten','destroyed','2026-01-31T12:00:00.000025Z','2026-02-01T12:00:00.000046Z','2026-03-05T12:00:00.000061Z',NULL,'fedaf','recommended','{"epochs":1}','forgotten',90.0,90.0,'{"bytes":0,"gradient_evaluations":0.0,"peak_bytes":0,"seconds":0,"seconds_by_stage":{},"stored_bytes":0}','5a70b7ad0c5d3cf6a1b1f3a25a7162b33679c94d8eeaa81143bdbb0d14608b6f',NULL,'595dbcadc48c09eb5c2e5d84fe2ba02512da8659c83bb3dd7e03edd6984e6104');
INSERT INTO "versions" VALUES('digits',3,'243d7f6348f89af484691567bd456ed180ff6035fcb6ad12045c6c706038109d',2,'forgotten','superseded','2026-02-01T12:00:00.000046Z','2026-03-05T12:00:00.000080Z',NULL,NULL,'fedaf','recommended','{"epochs":1}','forgotten',90.0,90.0,'{"bytes":0,"gradient_evaluations":0.0,"peak_bytes":0,"seconds":0,"seconds_by_stage":{},"stored_bytes":0}','80dfd66bfb84ba7ee698f6776b0987822eb875f16a70b33705fe43cbf80b6bf0',NULL,'ff2228b72b9e29596a350af572bbf0819af383330ff8e4ee33b305aaf009f3f3');
INSERT INTO "versions" VALUES('digits',4,'af0903bb9c3f6f83aa3613812be4bb97eeb1bd94a8c4122f17353ecbd7728c1b',3,'forgotten','superseded','2026-03-05T12:00:00.000080Z','2026-03-05T12:00:00.000106Z',NULL,NULL,'fedaf','recommended','{"epochs":1}','over-forgotten',90.0,90.0,'{"bytes":0,"gradient_evaluations":0.0,"peak_bytes":0,"seconds":0,"seconds_by_stage":{},"stored_bytes":0}','034cc655f63edff51f89da34749593f91490b436a99e6a320c8d268c01eee77e',NULL,'92efcd21ed2dcc334a59d4afbd6bd5b64fb127c0f054bf3453639e8ebf987b4d');
INSERT INTO "versions" VALUES('digits',5,'243d7f6348f89af484691567bd456ed180ff6035fcb6ad12045c6c706038109d',4,'rollback','current','2026-03-05T12:00:00.000106Z',NULL,NULL,3,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'ff2228b72b9e29596a350af572bbf0819af383330ff8e4ee33b305aaf009f3f3');
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
CREATE TRIGGER rule_version_stays BEFORE UPDATE ON versions WHEN ((NEW.federation = OLD.federation OR (NEW.federation IS NULL AND OLD.federation IS NULL)) AND (NEW.number = OLD.number OR (NEW.number IS NULL AND OLD.number IS NULL)) AND (NEW.sha256 = OLD.sha256 OR (NEW.sha256 IS NULL AND OLD.sha256 IS NULL)) AND (NEW.guard = OLD.guard OR (NEW.guard IS NULL AND OLD.guard IS NULL)) AND (NEW.parent = OLD.parent OR (NEW.parent IS NULL AND OLD.parent IS NULL)) AND (NEW.kind = OLD.kind OR (NEW.kind IS NULL AND OLD.kind IS NULL)) AND (NEW.published = OLD.published OR (NEW.published IS NULL AND OLD.published IS NULL)) AND (NEW.restores = OLD.restores OR (NEW.restores IS NULL AND OLD.restores IS NULL)) AND (NEW.method = OLD.method OR (NEW.method IS NULL AND OLD.method IS NULL)) AND (NEW.preset = OLD.preset OR (NEW.preset IS NULL AND OLD.preset IS NULL)) AND (NEW.settings = OLD.settings OR (NEW.settings IS NULL AND OLD.settings IS NULL)) AND (NEW.verdict = OLD.verdict OR (NEW.verdict IS NULL AND OLD.verdict IS NULL)) AND (NEW.accuracy_before = OLD.accuracy_before OR (NEW.accuracy_before IS NULL AND OLD.accuracy_before IS NULL)) AND (NEW.accuracy_after = OLD.accuracy_after OR (NEW.accuracy_after IS NULL AND OLD.accuracy_after IS NULL)) AND (NEW.cost = OLD.cost OR (NEW.cost IS NULL AND OLD.cost IS NULL)) AND (NEW.evidence = OLD.evidence OR (NEW.evidence IS NULL AND OLD.evidence IS NULL)) AND (NEW.report = OLD.report OR (NEW.report IS NULL AND OLD.report IS NULL))) IS NOT TRUE BEGIN SELECT RAISE(ABORT, 'refused by the ledger: a version cannot be changed'); END;
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
