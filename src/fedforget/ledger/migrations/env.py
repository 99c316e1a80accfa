"""Alembic asks this file how to run. The connection, and its transaction, are the caller's (`database.upgrade`)."""

from alembic import context

from fedforget.ledger.schema import Base

if hasattr(context, "config"):  # who only imports this file is not Alembic, and has nothing to run
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=Base.metadata,
        transactional_ddl=True,
        transaction_per_migration=False,
    )
    context.run_migrations()
