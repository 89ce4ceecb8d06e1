package main

import (
	"context"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/redis/go-redis/v9"
)

var (
	index = fence.Index{}
	head  = make([]byte, 600)
)

// elsewhere measures the other ledgers, each against what somebody would write by hand there.
func (w *world) elsewhere() []*variant {
	const floorRedis, floorSQLite = "Redis: SET NX, then SET", "SQLite: INSERT, then UPDATE"
	memory := &rotating{keeper: w.inMemory}
	redisPrepare, onRedis := rotate(w.onRedis)
	sqlitePrepare, onSQLite := rotate(w.onSQLite)
	allPrepare, onSQLiteAll := rotate(w.onSQLiteAll)
	return []*variant{
		{name: floorRedis, note: "2 commands, by hand", base: floorRedis, op: func(ctx context.Context) error {
			key := unique("floor")
			if err := w.redis.SetArgs(ctx, key, "pending", redis.SetArgs{Mode: "NX"}).Err(); err != nil {
				return err
			}
			return w.redis.Set(ctx, key, result, 0).Err()
		}},
		{name: "Redis: Once", note: "2 scripts", base: floorRedis, target: "≤ 1.5", prepare: redisPrepare, op: onRedis},
		{name: floorSQLite, note: "2 commits, both flushed, by hand", base: floorSQLite, op: func(ctx context.Context) error {
			id := serial.Add(1)
			if _, err := w.sqlite.ExecContext(ctx, pgInsert, id); err != nil {
				return err
			}
			_, err := w.sqlite.ExecContext(ctx, pgUpdate, id, result)
			return err
		}},
		{name: "SQLite: Once", note: "claim flushed, settle not", base: floorSQLite, prepare: sqlitePrepare, op: onSQLite},
		{name: "SQLite: Once, FlushAll", note: "both flushed", base: floorSQLite, prepare: allPrepare, op: onSQLiteAll},
		{name: "memory: Once", note: "no I/O, one after another", target: "≤ 2 µs", per: opsPerConversation, prepare: memory.prepareNew, op: memory.all},
	}
}
