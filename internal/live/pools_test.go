package live

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencedrun/fencedrun/internal/services/private"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
	"github.com/fencedrun/fencedrun/runs"
)

// keeperOn is a keeper whose store works on p, in a schema of its own.
func keeperOn(t *testing.T, p *pgxpool.Pool, config *runs.Config) *runs.Keeper {
	t.Helper()
	schema := schemaOn(t, pool(t, private.ServicePostgres.Need(t)))
	store, err := pgledger.Open(t.Context(), p, &pgledger.Config{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	k, err := runs.New(store, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

// Case F17: a server that kills idle transactions, and an effect that takes longer than it allows.
// The ledger holds no transaction and no connection meanwhile, and answers whoever else asks.
func TestWhileAnEffectRunsNothingIsHeld(t *testing.T) {
	at := private.ServicePostgres.Need(t)
	const name = "fencedrun-live-f17"
	p := pool(t, at, func(c *pgxpool.Config) {
		c.MaxConns = 1 // the effect needs it
		c.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "100ms"
		c.ConnConfig.RuntimeParams["statement_timeout"] = "500ms"
		c.ConnConfig.RuntimeParams["application_name"] = name
	})
	watcher := pool(t, at)
	k := keeperOn(t, p, nil)
	other := keeperOn(t, p, nil) // another conversation's work goes on
	calls := 0
	err := k.Do(t.Context(), job("c", 1), func(ctx context.Context) error {
		return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID("m1")}, func(ctx context.Context, _ *runs.Call) error {
			calls++
			for end := time.Now().Add(400 * time.Millisecond); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				var open int
				err := watcher.QueryRow(ctx, "select count(*) from pg_stat_activity where application_name = $1 and state <> 'idle'", name).Scan(&open)
				if err != nil || open != 0 {
					t.Errorf("%d statements or transactions are open, %v", open, err)
				}
			}
			if _, err := p.Exec(ctx, "select 1"); err != nil {
				t.Errorf("the only connection: %v", err)
			}
			// The same effect, asked for elsewhere, is answered at once.
			started := time.Now()
			err := k.Once(ctx, "c", runs.Effect{Intent: "reply", Key: runs.ID("m1")}, func(context.Context, *runs.Call) error {
				calls++
				return nil
			})
			if refused, ok := errors.AsType[*runs.RefusedError](err); !ok || refused.Reason != runs.ReasonInFlight {
				t.Errorf("asked meanwhile: %v", err)
			}
			if waited := time.Since(started); waited > 5*time.Second {
				t.Errorf("answered after %v", waited)
			}
			return other.Once(ctx, "d", runs.Effect{Intent: "tag", Key: runs.ID("x")}, func(context.Context, *runs.Call) error { return nil })
		})
	})
	if err != nil || calls != 1 || state(t, k, "c") != runs.Committed {
		t.Errorf("%v; called %d times, %s", err, calls, state(t, k, "c"))
	}
}

// Case F18: every connection of the pool is in handlers' hands, for three lease periods. The leases
// are renewed all the same, over a connection of the ledger's own.
func TestHeartbeatsDoNotStarveWithThePool(t *testing.T) {
	const lease = 600 * time.Millisecond
	p := pool(t, private.ServicePostgres.Need(t), func(c *pgxpool.Config) { c.MaxConns = 4 })
	var mu sync.Mutex
	lost := 0
	k := keeperOn(t, p, &runs.Config{Lease: lease, Beat: lease / 6, Observer: func(_ context.Context, e runs.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Kind == runs.EventLeaseLost {
			lost++
		}
	}})
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			j := job(fmt.Sprint("c", i), i)
			j.Mode = runs.Exclusive
			err := k.Do(t.Context(), j, func(ctx context.Context) error {
				conn, err := p.Acquire(ctx)
				if err != nil {
					return err
				}
				select {
				case <-time.After(3 * lease):
				case <-ctx.Done():
					err = context.Cause(ctx)
				}
				conn.Release()
				return err
			})
			if err != nil {
				t.Errorf("handler %d: %v", i, err)
			}
		})
	}
	group.Wait()
	if lost != 0 {
		t.Errorf("%d leases were lost", lost)
	}
}
