package sim

import (
	"context"
	"errors"
	"time"
	"unsafe"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/memledger"
)

// database is the one ledger of a world. It can crash and lose what was not durable.
type database struct {
	w     *World
	inner *memledger.Store
	at    int64 // the clock while a crash is replayed; -1: the world's
	log   []written
	safe  int // log[:safe] survives a crash
	// hash is of everything in it, for pruning; rows holds what each row contributes.
	hash uint64
	rows map[string]uint64
	tags map[string]uint64 // what the hash was when a tag was written
	tag  string            // the newest
	used map[string]bool   // ids that were written
	// applies counts the writes that were applied, version whatever changed anything.
	applies, version int
}

type written struct {
	at     int64
	conv   string
	write  *ledger.Write
	leases []ledger.LeaseKey
	d      time.Duration
	run    string
	stone  []byte
	due    fence.Millis
	limit  int
}

func (w *World) newDatabase() *database {
	db := &database{w: w, at: -1}
	db.inner = memledger.NewSeamed(&seam.Seam{Now: db.clock})
	return db
}

// clock is the ledger's own: no worker's skew reaches it.
func (db *database) clock() time.Time {
	if db.at >= 0 {
		return epoch.Add(time.Duration(db.at))
	}
	return epoch.Add(time.Duration(db.w.now))
}

func (db *database) remember(e written, durable bool) {
	if !db.w.on.Has(LoseWrites) {
		return
	}
	e.at = db.w.now
	db.log = append(db.log, e)
	if durable {
		db.safe = len(db.log)
	}
}

// crash loses the last n writes.
func (db *database) crash(n int) {
	db.version++
	db.log = db.log[:len(db.log)-n]
	db.inner = memledger.NewSeamed(&seam.Seam{Now: db.clock})
	ctx := context.Background()
	for _, e := range db.log {
		db.at = e.at
		switch {
		case e.write != nil:
			_, _ = db.inner.Apply(ctx, e.conv, *e.write)
		case e.leases != nil:
			_, _ = db.inner.Renew(ctx, e.leases, e.d)
		case e.run != "":
			_, _ = db.inner.Bury(ctx, e.run, e.stone, e.due)
		default:
			_, _ = db.inner.Exhume(ctx, e.limit)
		}
	}
	db.at = -1
	db.safe = len(db.log)
}

var (
	errDown = errors.New("sim: the store cannot be reached")
	errLost = errors.New("sim: the store's answer was lost")
)

// connection is a process's way to the database. It implements ledger.Store.
type connection struct {
	p       *proc
	applied bool // the call in hand was a write that was applied: its answer tells nothing else
}

// call is one call of the store: before, the thing itself, after.
func (c *connection) call(ctx context.Context, k kind, what string, do func() error) error {
	w := c.p.w
	t := w.cur
	f := t.point(k, what)
	switch f {
	case Outage:
		w.downUntil = w.now + int64(1+w.c.choose(3)*30)*second
	case Cut:
		c.p.cutUntil = w.now + int64(10+w.c.choose(3)*60)*second
	}
	if w.downUntil > w.now || c.p.cutUntil > w.now || f == StoreError {
		t.sawError(1)
		return errDown
	}
	if err := ctx.Err(); err != nil {
		t.sawError(5)
		return err
	}
	if f == StoreSlow {
		// Written now, and the answer takes longer than anybody waits.
		err := do()
		if cause := t.sleep(ctx, 15*second); cause != nil {
			return ctx.Err()
		}
		return err
	}
	c.applied = false
	err := do()
	switch {
	case err != nil:
		t.sawError(4)
	case c.applied:
		t.told(3)
	default:
		t.told(w.db.hash)
	}
	if f == WrittenTwice {
		err = do()
	}
	t.after(f)
	if f == LostAck {
		t.sawError(2)
		return errLost
	}
	return err
}

func (c *connection) Load(ctx context.Context, conv string, q ledger.Query) (snap ledger.Snapshot, err error) {
	defer func() { c.p.w.cur.asked(&q) }()
	err = c.call(ctx, atStore, "load", func() (err error) {
		snap, err = c.p.w.db.inner.Load(ctx, conv, q)
		return err
	})
	return snap, err
}

func (c *connection) Apply(ctx context.Context, conv string, write ledger.Write) (result ledger.Result, err error) {
	defer func() { c.p.w.cur.asked(&write.Want) }()
	db, what := c.p.w.db, "write"
	if c.p.w.keep {
		what += writes(&write)
	}
	err = c.call(ctx, atStore, what, func() (err error) {
		result, err = db.inner.Apply(ctx, conv, write)
		if err == nil && result.Applied {
			db.applies++
			db.version++
			c.applied = true
			if t := c.p.w.cur; t != nil {
				t.stored, t.storedAt, t.applied, t.durable = c.p.w.steps, c.p.w.now, db.applies, write.Durable
			}
			db.remember(written{conv: conv, write: &write}, write.Durable)
			db.rehash(conv, &write)
			db.w.crossed(conv, &write)
		}
		return err
	})
	return result, err
}

func (c *connection) Renew(ctx context.Context, leases []ledger.LeaseKey, d time.Duration) (renewed []ledger.Renewed, err error) {
	db := c.p.w.db
	c.p.w.renewing(c.p, leases)
	err = c.call(ctx, atBeat, "renew", func() (err error) {
		for _, l := range leases {
			snap, _ := db.inner.Load(ctx, l.Conversation, ledger.Query{})
			for _, have := range snap.Leases {
				if have.Nonce == l.Nonce && have.Until <= snap.Now {
					c.p.w.revived = append(c.p.w.revived, l.Nonce)
				}
			}
		}
		db.version++
		renewed, err = db.inner.Renew(ctx, leases, d)
		if c.p.w.tracking && err == nil {
			for i, l := range leases {
				if renewed[i].Found {
					db.set("lease "+l.Run+l.Nonce, leaseHash(l.Run, l.Nonce, c.p.w.now+int64(d)))
				}
			}
		}
		db.remember(written{leases: leases, d: d}, false)
		return err
	})
	return renewed, err
}

func (c *connection) FindRun(ctx context.Context, run string) (home ledger.Home, err error) {
	err = c.call(ctx, atStore, "find run", func() (err error) {
		home, err = c.p.w.db.inner.FindRun(ctx, run)
		return err
	})
	return home, err
}

func (c *connection) Bury(ctx context.Context, run string, stone []byte, due fence.Millis) (buried bool, err error) {
	db := c.p.w.db
	err = c.call(ctx, atStore, "bury", func() (err error) {
		db.version++
		buried, err = db.inner.Bury(ctx, run, stone, due)
		if buried {
			db.w.cov.crossed(edge{"run", born, "cancelled", "tombstone"})
			db.remember(written{run: run, stone: stone, due: due}, true)
		}
		return err
	})
	return buried, err
}

func (c *connection) Exhume(ctx context.Context, limit int) (n int, err error) {
	db := c.p.w.db
	err = c.call(ctx, atStore, "exhume", func() (err error) {
		db.version++
		n, err = db.inner.Exhume(ctx, limit)
		db.remember(written{limit: limit}, false)
		return err
	})
	return n, err
}

func (c *connection) Scan(ctx context.Context, q ledger.Scan) (found []ledger.Found, err error) {
	err = c.call(ctx, atStore, "scan", func() (err error) {
		found, err = c.p.w.db.inner.Scan(ctx, q)
		return err
	})
	return found, err
}

func (c *connection) Close() error { return nil }

// renewing checks rule S9.1: a lease is not renewed for a delivery that its queue has given up.
func (w *World) renewing(p *proc, leases []ledger.LeaseKey) {
	for _, l := range leases {
		known, counted := false, false
		for _, j := range w.jobs {
			if fence.RunRow(fence.RunKey{Queue: w.queueKey(), ID: j.id}) != l.Run {
				continue
			}
			for _, d := range j.at {
				if d.p == p && !d.over {
					known = true
					counted = counted || !d.cancelled
				}
			}
		}
		if known && !counted {
			w.fail("renewal", "the lease of %s is renewed although its queue gave it up", l.Run)
		}
	}
}

// rehash keeps the hash in step with a write. Ids are named by the task that drew them, so
// equal contents have equal hashes however they came about.
func (db *database) rehash(conv string, w *ledger.Write) {
	if !db.w.tracking {
		return
	}
	if db.rows == nil {
		db.rows, db.tags = map[string]uint64{}, map[string]uint64{}
		db.used = map[string]bool{}
	}
	clear(db.w.known)
	d := digger{w: db.w, known: db.w.known, rows: true}
	row := func(r *ledger.Row) {
		d.h = hashString(conv)
		digRow(&d, unsafe.Pointer(r)) //nolint:gosec // nothing is written through it
		db.set(r.Key, d.h)
	}
	db.used[w.NewTag] = true
	row(&w.Head)
	for i := range w.Put {
		row(&w.Put[i])
	}
	for _, k := range w.Delete {
		db.set(k, 0)
	}
	for _, l := range w.Leases {
		v := uint64(0)
		if l.For > 0 {
			v = leaseHash(l.Run, l.Nonce, db.w.now+int64(l.For))
		}
		db.set("lease "+l.Run+l.Nonce, v)
	}
	db.tag, db.tags[w.NewTag] = w.NewTag, db.hash
}

func (db *database) set(key string, v uint64) {
	db.hash ^= db.rows[key] ^ v
	db.rows[key] = v
}

func leaseHash(run, nonce string, until int64) uint64 {
	return hashString(run+nonce) ^ uint64(until)*0x9e3779b97f4a7c15
}
