"""The console: a web page for people and a JSON API for programs, both over the ledger.

permissions   which role may do what: one table, and every route names its line in it
visitors      who is asking, and whether that line lets them
security      headers, cookies, forgery tokens, limits on bodies and hosts
app           all of it put together; `server` runs it, with a worker beside it"""
