"""Check a certificate without fedforget: pip install 'securesystemslib[crypto]', then

    python verify_certificate.py certificate.json KEY.public.pem

The key must come from who signed it, by another way than the certificate."""

import hashlib
import json
import sys

from cryptography.hazmat.primitives.serialization import load_pem_public_key
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey


def verified(certificate: bytes, key: bytes) -> dict:
    """The in-toto Statement in a certificate that this key signed; ValueError for anything else."""
    public = load_pem_public_key(key)
    # Our ids of keys are the beginning of the SHA-256 of the key's 32 bytes.
    keyid = hashlib.sha256(public.public_bytes_raw()).hexdigest()[:16]
    envelope = Envelope.from_dict(json.loads(certificate))
    envelope.verify([SSlibKey.from_crypto(public, keyid=keyid)], threshold=1)
    statement = json.loads(envelope.payload)
    kinds = (envelope.payload_type, statement["_type"], statement["predicateType"])
    if kinds != ("application/vnd.in-toto+json", "https://in-toto.io/Statement/v1", "urn:fedforget:certificate:2"):
        raise ValueError(f"this is something else: {kinds}")
    return statement


def main() -> int:
    with open(sys.argv[1], "rb") as certificate, open(sys.argv[2], "rb") as key:
        try:
            statement = verified(certificate.read(), key.read())
        except (VerificationError, ValueError, KeyError, TypeError) as error:
            print(f"Refused: {error}")
            return 1
    predicate = statement["predicate"]
    print("Genuine. Issued", predicate["issued"])
    print("Asked:", predicate["request"]["describes"], "of", predicate["request"]["federation"])
    print("Verdict:", predicate["measured"]["verdict"]["word"])
    for model in statement["subject"]:
        print("Model", model["name"], "SHA-256", model["digest"]["sha256"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
