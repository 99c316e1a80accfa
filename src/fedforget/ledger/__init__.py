"""The ledger: from a request to its evidence, in SQL, with every step in a chain of hashes.

    from fedforget.ledger.book import Ledger

`book.Ledger` is the one door; nobody else talks to the database. Needs the extra `service`."""
