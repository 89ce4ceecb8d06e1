package pgledger_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
)

// cutter makes connections that are lost once they were told to: what is sent next arrives, and its
// answer does not.
type cutter struct {
	armed atomic.Pointer[func()] // called before the connection is lost
	cuts  atomic.Int64
}

func (c *cutter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	return &cutConn{Conn: conn, c: c}, err
}

func (c *cutter) through(config *pgxpool.Config) { config.ConnConfig.DialFunc = c.dial }

// next loses the answer to what is sent next, after arrived has returned.
func (c *cutter) next(arrived func()) { c.armed.Store(&arrived) }

type cutConn struct {
	net.Conn
	c    *cutter
	mine atomic.Pointer[func()]
}

func (c *cutConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("synchronous_commit")) { // a change, as every one says how it commits
		if f := c.c.armed.Swap(nil); f != nil {
			c.mine.Store(f)
		}
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	if f := c.mine.Swap(nil); f != nil {
		(*f)()
		c.c.cuts.Add(1)
		c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return c.Conn.Read(b)
}

// Case F13: the server commits, and its answer is lost with the connection. The ledger asks again
// and finds its own change.
func TestALostCommitIsRecognised(t *testing.T) {
	direct := poolOf(t, postgres(t))
	schema := fresh(t, direct)
	var cut cutter
	pool := poolOf(t, postgres(t), cut.through)
	store := opened(t, pool, pgledger.Config{Schema: schema, ExecMode: pgx.QueryExecModeExec})
	l := newLedger(store)
	c := ledger.ConversationKey("", "c")
	tag := func() string {
		return scalar[string](t, direct, "select coalesce((select encode(tag, 'escape') from "+schema+".conversation where name = $1), '')", []byte(c))
	}
	// arm loses the next answer as soon as what it answers is committed.
	arm := func() {
		was := tag()
		cut.next(func() {
			for deadline := time.Now().Add(10 * time.Second); tag() == was; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Error("what was sent was not committed")
					return
				}
			}
		})
	}
	if _, err := l.Stamp(t.Context(), "warm"); err != nil { // now it knows the ledger's clock
		t.Fatal(err)
	}

	arm()
	h := begun(t, l, "c", "j")
	if d := h.Delivery(); d.ID.Number != 1 {
		t.Errorf("the delivery is number %d: the lost Begin was counted as another", d.ID.Number)
	}
	for i := range 3 {
		arm()
		v := claim(t, h, effect("c", fmt.Sprint(i)))
		arm()
		settle(t, h, v)
	}
	arm()
	if v, _, err := h.End(t.Context(), fence.EndSuccess); err != nil || v.Refusal != nil {
		t.Errorf("end: %+v, %v", v, err)
	}
	history, err := l.History(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	if n := cut.cuts.Load(); n != 8 {
		t.Errorf("%d connections were lost, want 8", n)
	}
	if len(history.Runs) != 1 || history.Runs[0].State != fence.RunEnded || len(history.Effects) != 3 {
		t.Fatalf("%d runs, %d effects", len(history.Runs), len(history.Effects))
	}
	for _, e := range history.Effects {
		if e.State() != fence.Committed || len(e.Calls) != 1 {
			t.Errorf("effect %s is %s after %d calls", e.Key, e.State(), len(e.Calls))
		}
	}
}

// A session that is terminated in the middle of its statement: whether it was committed is not
// known to anybody who does not look.
func TestATerminatedSessionIsAnErrorAndNoAnswer(t *testing.T) {
	store, pool, schema := newStore(t)
	must(t, store, "c", change("", "1", true))
	tx, rollback := begin(t, pool) // somebody holds the row, so that the claim is in the middle
	if _, err := store.Join(t.Context(), tx, "c"); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		r   ledger.Result
		err error
	}
	done := make(chan answer, 1)
	go func() {
		r, err := store.Apply(context.Background(), "c", change("1", "2", true))
		done <- answer{r, err}
	}()
	waiting(t, pool, schema, 1)
	run(t, pool, "select pg_terminate_backend(pid) from pg_stat_activity where wait_event_type = 'Lock' and query like '%' || $1 || '%'", schema)
	a := <-done
	if a.err == nil || a.r.Applied || !strings.Contains(a.err.Error(), "pgledger: apply") {
		t.Errorf("%+v, %v", a.r, a.err)
	}
	rollback()
}

func TestTheLedgerOutlivesItsSessions(t *testing.T) {
	_, pool, schema := newStore(t)
	store := opened(t, poolOf(t, with(t, postgres(t), "application_name", schema)), configOf(schema))
	l := ledger.New(store, ledger.Options{Seam: seam.Real(), Rules: rules, Tries: 50})
	h := begun(t, l, "c", "j")
	var kills atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
			n := int64(0)
			_ = pool.QueryRow(context.Background(),
				"select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = $1", schema).Scan(&n)
			kills.Add(n)
		}
	}()
	n := 0
	for ; n < 100 || kills.Load() < 3; n++ {
		settle(t, h, claim(t, h, effect("c", fmt.Sprint(n))))
	}
	close(stop)
	<-stopped
	history, err := l.History(t.Context(), "c")
	if err != nil || len(history.Effects) != n {
		t.Fatalf("%d effects of %d, %v", len(history.Effects), n, err)
	}
	for _, e := range history.Effects {
		if e.State() != fence.Committed || len(e.Calls) != 1 {
			t.Errorf("effect %s is %s after %d calls", e.Key, e.State(), len(e.Calls))
		}
	}
	t.Logf("%d effects, %d sessions terminated", n, kills.Load())
}
