package main

import (
	"context"
	_ "embed"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/runs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	//go:embed sql/schema.sql
	pgSchema string
	//go:embed sql/insert.sql
	pgInsert string
	//go:embed sql/update.sql
	pgUpdate string
	//go:embed sql/update_async.sql
	pgUpdateAsync string
	//go:embed sql/select.sql
	pgSelect string
	//go:embed sql/flush.sql
	pgFlush string
)

// result is what the floors record. Effects here have no result, but the ledger's record of one
// is longer than that.
var result = []byte(`{"id":"0123456789abcdef"}`)

// flush commits something and waits for the disk, so that what earlier measurements left to be
// written is written, and is not waited for by the next.
func (w *world) flush(ctx context.Context) error {
	_, err := w.pool.Exec(ctx, pgFlush)
	return err
}

// floor is what somebody would write by hand around an effect.
func floor(pool *pgxpool.Pool, update string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		id := serial.Add(1)
		if _, err := pool.Exec(ctx, pgInsert, id); err != nil {
			return err
		}
		_, err := pool.Exec(ctx, update, id, result)
		return err
	}
}

func (w *world) onPostgres(ctx context.Context) ([]*variant, error) {
	const floorName, floorOff = "INSERT, then UPDATE", "INSERT, then UPDATE, nothing flushed"
	variants := []*variant{
		{name: floorName, note: "2 commits, both flushed, by hand", base: floorName, op: floor(w.pool, pgUpdate)},
		{name: "INSERT, then UPDATE not flushed", note: "1 flushed", base: floorName, op: floor(w.pool, pgUpdateAsync)},
		{name: floorOff, note: "synchronous_commit=off", base: floorName, op: floor(w.off, pgUpdate)},
	}
	add := func(v variant) { variants = append(variants, &v) }

	once := func(name, note, base, target string, k *runs.Keeper) {
		prepare, op := rotate(k)
		add(variant{name: name, note: note, base: base, target: target, prepare: prepare, op: op})
	}
	once("Once", "claim flushed, settle not", floorName, "≤ 1.15", w.once)
	once("Once, FlushAll", "both flushed", floorName, "", w.flushed)
	once("Once, nothing flushed", "synchronous_commit=off", floorOff, "≤ 1.8", w.lazy)

	watched := &rotating{keeper: w.watched}
	var outside time.Duration
	add(variant{
		name: "Once, outside of pgx", note: "the library's own time, one after another", target: "≤ 15 µs", per: opsPerConversation,
		prepare: watched.prepareNew, op: func(ctx context.Context) error {
			w.trace.spent.Store(0)
			begun := time.Now()
			err := watched.all(ctx)
			outside = time.Since(begun) - time.Duration(w.trace.spent.Load())
			return err
		}, own: func() time.Duration { return outside },
	})

	add(variant{name: "whole job", note: "Begin, Once, End on a new conversation", base: floorName, op: func(ctx context.Context) error {
		return w.once.Do(ctx, job(unique("conversation")), func(ctx context.Context) error {
			return runs.FromContext(ctx).Once(ctx, effect(), call)
		})
	}})

	const selected = "SELECT by primary key"
	id := serial.Add(1)
	if _, err := w.pool.Exec(ctx, pgInsert, id); err != nil {
		return nil, err
	}
	add(variant{name: selected, base: floorName, op: func(ctx context.Context) error {
		var state string
		var kept []byte
		return w.pool.QueryRow(ctx, pgSelect, id).Scan(&state, &kept)
	}})
	replayed := &rotating{keeper: w.once}
	var known runs.Effect
	add(variant{name: "replay", note: "Once of an effect that a delivery before did", base: selected, target: "≤ 2.2", prepare: func(ctx context.Context) error {
		replayed.fresh = func(ctx context.Context) (string, error) {
			s, err := begin(ctx, w.lazy, unique("conversation"))
			if err != nil {
				return "", err
			}
			known = effect()
			if err := s.once(known); err != nil {
				return "", err
			}
			return s.run.Job().Conversation, s.close()
		}
		return replayed.prepareNew(ctx) // what a run has seen once it answers from memory
	}, op: func(ctx context.Context) error { return replayed.once(known) }})

	small := &rotating{keeper: w.once, fresh: func(ctx context.Context) (string, error) { return settled(ctx, w.lazy, 10) }}
	add(variant{name: "Once, 10 settled", note: "on a conversation with 10 effects", base: floorName, prepare: small.prepare, op: small.next})
	const many = 10_000
	long, err := settled(ctx, w.lazy, many)
	if err != nil {
		return nil, fmt.Errorf("a conversation with %d effects: %w", many, err)
	}
	big := &rotating{keeper: w.once, fresh: func(context.Context) (string, error) { return long, nil }}
	add(variant{name: "Once, 10,000 settled", note: "on one with 10,000 effects and more", base: "Once, 10 settled", target: "≤ 1.2", prepare: big.prepare, op: big.next})

	beats, err := w.heartbeats(ctx, 100, 1000)
	return append(variants, beats...), err
}

// heartbeats renews leases of deliveries that are under way, so many in one statement.
func (w *world) heartbeats(ctx context.Context, sizes ...int) ([]*variant, error) {
	var keys []ledger.LeaseKey
	for range sizes[len(sizes)-1] {
		key, err := w.lease(ctx)
		if err != nil {
			return nil, fmt.Errorf("begin: %w", err)
		}
		keys = append(keys, key)
	}
	var variants []*variant
	for _, n := range sizes {
		variants = append(variants, &variant{
			name: fmt.Sprintf("heartbeat of %d runs", n), note: "for each run", target: "≤ 10 µs", per: n,
			op: func(ctx context.Context) error {
				renewed, err := w.store.Renew(ctx, keys[:n], 30*time.Second)
				for _, r := range renewed {
					if !r.Found {
						return fmt.Errorf("a lease is gone")
					}
				}
				return err
			},
		})
	}
	return variants, nil
}

// lease makes a conversation with a lease, of about the size that a delivery has.
func (w *world) lease(ctx context.Context) (ledger.LeaseKey, error) {
	key := ledger.LeaseKey{Conversation: unique("conversation"), Run: "r/" + unique("run"), Nonce: unique("nonce-0123456789")}
	r, err := w.store.Apply(ctx, key.Conversation, ledger.Write{
		NewTag: unique("tag-01234567"), Head: ledger.NewRow("", index, head),
		Leases: []ledger.LeaseWrite{{Run: key.Run, Nonce: key.Nonce, For: 30 * time.Second}},
	})
	if err == nil && !r.Applied {
		err = fmt.Errorf("a new conversation was refused")
	}
	return key, err
}

// tracer adds up the time between a statement's start and its last answer.
type tracer struct{ spent atomic.Int64 } // nanoseconds

type startKey struct{}

func (t *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, startKey{}, time.Now())
}

func (t *tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	t.stop(ctx)
}

// What is sent in a batch counts as one.

func (t *tracer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return t.TraceQueryStart(ctx, conn, pgx.TraceQueryStartData{})
}

func (t *tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (t *tracer) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	t.stop(ctx)
}

func (t *tracer) stop(ctx context.Context) {
	if begun, ok := ctx.Value(startKey{}).(time.Time); ok {
		t.spent.Add(int64(time.Since(begun)))
	}
}
