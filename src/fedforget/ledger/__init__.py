"""The ledger: from a request to its evidence, in SQL, with every step in a chain of hashes.

    from fedforget.ledger.book import Ledger

`book.Ledger` is the one door; nobody else talks to the database. Needs the extra `service`. It makes these parts, each
over one `core.Core` (database, clock, chain), in a file of its name (models: model_files, requests: intake). A part
uses only parts above it:

    trail        the events, and whether all of it is as it was written
    accounts     people, and the secrets that let them in
    keys         what signs certificates
    models       the files of models
    federations  what a request can be about            (uses models)
    requests     submitted, accepted, refused, extended
    work         claims and leases of workers           (uses requests)
    versions     published, decided on, rolled back     (uses models, keys, federations, requests, work)
    withdrawals  certificates that hold no more         (uses keys, federations, requests)
    destruction  of what is kept no longer              (uses models, federations)
    register     the requests of a period               (uses versions)
    lineage      where withdrawn data lives on          (uses models, keys, destruction)"""
