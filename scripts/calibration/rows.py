"""A table in SQLite, in memory: inserts, an index, a join, an aggregate."""

import random
import sqlite3

random.seed(7)
rows = sqlite3.connect(":memory:")
rows.execute("create table item (id integer primary key, kind integer, price real, name text)")
values = ((random.randrange(500), random.random(), "item %d" % i) for i in range(60_000))
rows.executemany("insert into item (kind, price, name) values (?, ?, ?)", values)
rows.execute("create index by_kind on item (kind, price)")
query = "select a.kind, count(*), max(b.price) from item a join item b on a.kind = b.kind "
query += "where a.price < 0.01 group by a.kind order by 2 desc, 1 limit 3"
print(rows.execute(query).fetchall())
