package pgledger_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/key"
)

var rules = fence.Rules{Lease: 60_000, Quiet: 120_000, Retention: 1 << 40, MaxCalls: 3}

func newLedger(store ledger.Store) *ledger.Ledger {
	return ledger.New(store, ledger.Options{Seam: seam.Real(), Rules: rules})
}

var newID = seam.Real().NewID

// begun begins a job that must be granted.
func begun(t testing.TB, l *ledger.Ledger, conversation, id string) *ledger.Handle {
	t.Helper()
	h, v, _, err := l.Begin(t.Context(), conversation, fence.BeginRequest{
		Run: fence.RunKey{Queue: "q", ID: id}, Mode: fence.Supersede, Reads: fence.AfterBegin, Identity: fence.Identity{Nonce: newID()},
	})
	if err != nil || h == nil {
		t.Fatalf("begin: %+v, %v", v, err)
	}
	t.Cleanup(h.Close)
	return h
}

func effect(conversation, id string) fence.ClaimRequest {
	k := key.ID(id)
	return fence.ClaimRequest{
		Effect: key.EffectID("", conversation, "reply", k), Intent: "reply", Key: k.Canonical(), KeyID: id, Distinct: true, Claim: newID(), For: 60_000,
	}
}

func settlement(v fence.ClaimVerdict, result string) fence.SettleRequest {
	return fence.SettleRequest{Effect: v.Effect.ID, Claim: v.Call.Claim, State: fence.Committed, Result: []byte(result), Granted: v.Effect}
}

func claim(t testing.TB, h *ledger.Handle, q fence.ClaimRequest) fence.ClaimVerdict {
	t.Helper()
	v, _, err := h.Claim(t.Context(), q)
	if err != nil || v.Call == nil {
		t.Fatalf("claim: %+v, %v", v, err)
	}
	return v
}

func settle(t testing.TB, h *ledger.Handle, v fence.ClaimVerdict) {
	t.Helper()
	if s, _, err := h.Settle(t.Context(), settlement(v, "done")); err != nil || !s.Recorded {
		t.Fatalf("settle: %+v, %v", s, err)
	}
}

func TestAnEffectIsTwoStatementsAndAReplayOne(t *testing.T) {
	var r tracer
	store, _, _ := newStore(t, traced(&r))
	l := newLedger(store)
	if _, err := l.Stamp(t.Context(), "warm"); err != nil {
		t.Fatal(err)
	}
	r.take()
	h := begun(t, l, "c", "j")
	if n := r.take(); n != 1 {
		t.Errorf("Begin on a new conversation: %d statements, want 1", n)
	}
	for i := range 20 {
		v := claim(t, h, effect("c", fmt.Sprint(i)))
		settle(t, h, v)
		if n := r.take(); n != 2 {
			t.Fatalf("effect %d: %d statements, want claim and settle", i, n)
		}
	}
	if v, _, err := h.Claim(t.Context(), effect("c", "3")); err != nil || v.Replay == nil {
		t.Fatalf("%+v, %v", v, err)
	}
	if n := r.take(); n != 1 {
		t.Errorf("a replay: %d statements, want 1", n)
	}
	pending := effect("c", "pending")
	claim(t, h, pending)
	r.take()
	pending.Claim = newID()
	if v, _, err := h.Claim(t.Context(), pending); err != nil || v.Refusal == nil || v.Refusal.Reason != fence.ReasonInFlight {
		t.Fatalf("%+v, %v", v, err)
	}
	if n := r.take(); n != 1 {
		t.Errorf("in flight: %d statements, want 1", n)
	}
}

// Who writes what is there already is shown it, and takes no lock for it: nobody is racing. Who
// comes too late must lock, and is shown nothing that could be from before.
func TestARefusalForARowShowsIt(t *testing.T) {
	var r tracer
	store, _, _ := newStore(t, traced(&r))
	row := ledger.NewRow("k", noIndex, []byte("x"))
	w := change("", "1", false)
	w.Put = []ledger.Row{row}
	must(t, store, "c", w)
	for _, c := range []struct {
		name       string
		w          ledger.Write
		shown      bool
		statements int
	}{
		{"one row", ledger.Write{Tag: "1", Put: []ledger.Row{row}, Absent: []string{"k"}}, true, 2},
		{"one row, for another", ledger.Write{Tag: "1", Put: []ledger.Row{ledger.NewRow("new", noIndex, nil)}, Absent: []string{"k"}}, true, 2},
		{"several", ledger.Write{Tag: "1", Absent: []string{"x", "k"}}, true, 2},
		{"with a lease", ledger.Write{Tag: "1", Absent: []string{"k"}, Leases: []ledger.LeaseWrite{{Run: "r", Nonce: "n", For: 1}}}, true, 2},
		{"another tag", ledger.Write{Tag: "0", Put: []ledger.Row{row}, Absent: []string{"k"}}, false, 1},
		{"several at another tag", ledger.Write{Tag: "0", Absent: []string{"x", "k"}}, false, 1},
		{"a new conversation", ledger.Write{}, false, 1},
	} {
		c.w.NewTag, c.w.Head, c.w.Want = "2", ledger.NewRow("", noIndex, nil), ledger.Query{Keys: []string{"k"}}
		r.take()
		got, err := store.Apply(t.Context(), "c", c.w)
		if err != nil || got.Applied || (got.Current != nil) != c.shown || r.take() != c.statements {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
		if got.Current != nil && (got.Current.Tag != "1" || len(got.Current.Rows) != 1) {
			t.Errorf("%s: shown %+v", c.name, *got.Current)
		}
	}
}

func TestAThousandLeasesAreRenewedByOneStatement(t *testing.T) {
	var r tracer
	store, pool, schema := newStore(t, traced(&r))
	var keys []ledger.LeaseKey
	for i := range 1000 {
		k := ledger.LeaseKey{Conversation: fmt.Sprint("c", i%500), Run: fmt.Sprint("r", i), Nonce: "n"}
		keys = append(keys, k)
	}
	run(t, pool, "insert into "+schema+".conversation (name, tag, head, due) select convert_to('c' || n, 'UTF8'), 't', 'h', 0 from generate_series(0, 499) n")
	run(t, pool, "insert into "+schema+".lease (conv, run, nonce, until) select c.id, convert_to('r' || n, 'UTF8'), 'n', 1 from "+
		"generate_series(0, 999) n join "+schema+".conversation c on c.name = convert_to('c' || n % 500, 'UTF8')")
	r.take()
	began := time.Now()
	renewed, err := store.Renew(t.Context(), keys, time.Minute)
	took := time.Since(began)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.take(); n != 1 {
		t.Errorf("%d statements, want 1", n)
	}
	for i, a := range renewed {
		if !a.Found || a.Tag != "t" {
			t.Fatalf("lease %d: %+v", i, a)
		}
	}
	t.Logf("%v, with opening the connection", took)
}

// What must be durable is committed as the session says, and the session stays as it was.
func TestTheStoreWeakensNothingThatIsDurable(t *testing.T) {
	levels := map[string]string{}
	store, pool, schema := newStore(t, func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.ConnConfig.RuntimeParams["synchronous_commit"] = "remote_apply"
	})
	// A deferred trigger says how the transaction is going to be committed.
	run(t, pool, fmt.Sprintf(`create table %[1]s.levels (tag text, level text)`, schema))
	run(t, pool, fmt.Sprintf(`create function %[1]s.note() returns trigger language plpgsql as $f$ begin
		insert into %[1]s.levels values (convert_from(new.tag, 'UTF8'), current_setting('synchronous_commit')); return null; end $f$`, schema))
	run(t, pool, fmt.Sprintf(`create constraint trigger noted after insert or update on %[1]s.conversation deferrable initially deferred for each row execute function %[1]s.note()`, schema))
	one := func(w ledger.Write) ledger.Write {
		w.Put = []ledger.Row{ledger.NewRow("k", noIndex, []byte("x"))}
		return w
	}
	lease := func(w ledger.Write) ledger.Write {
		w.Leases = []ledger.LeaseWrite{{Run: "r", Nonce: "n", For: time.Minute}}
		return w
	}
	must(t, store, "c", change("", "create", true))
	must(t, store, "d", change("", "create-async", false))
	must(t, store, "c", one(change("create", "put1", true)))
	must(t, store, "c", one(change("put1", "put1-async", false)))
	must(t, store, "c", change("put1-async", "puts", true))
	must(t, store, "c", change("puts", "puts-async", false))
	must(t, store, "c", lease(change("puts-async", "change", true)))
	must(t, store, "c", lease(change("change", "change-async", false)))
	locked := func(ws ...ledger.Write) {
		t.Helper()
		err := store.WithLock(t.Context(), "c", func(tx ledger.Tx) error {
			for _, w := range ws {
				if r, err := tx.Apply(t.Context(), "c", w); err != nil || !r.Applied {
					return fmt.Errorf("%+v, %w", r, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	locked(change("change-async", "lock", true))
	locked(change("lock", "lock-async", false))
	locked(change("lock-async", "both1", true), change("both1", "both2", false))
	tx, _ := begin(t, pool)
	joined, err := store.Join(t.Context(), tx, "c")
	if err != nil {
		t.Fatal(err)
	}
	if r, err := joined.Apply(t.Context(), "c", change("both2", "join", false)); err != nil || !r.Applied {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows, err := pool.Query(context.Background(), "select tag, level from "+schema+".levels")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var tag, level string
		if err := rows.Scan(&tag, &level); err != nil {
			t.Fatal(err)
		}
		levels[tag] = level
	}
	rows.Close()
	for tag, want := range map[string]string{
		"create": "remote_apply", "put1": "remote_apply", "puts": "remote_apply", "change": "remote_apply", "lock": "remote_apply",
		"both1": "remote_apply", "both2": "remote_apply", "join": "remote_apply",
		"create-async": "off", "put1-async": "off", "puts-async": "off", "change-async": "off", "lock-async": "off",
	} {
		if levels[tag] != want {
			t.Errorf("%s was committed at %q, want %q", tag, levels[tag], want)
		}
	}
	if level := scalar[string](t, pool, "show synchronous_commit"); level != "remote_apply" {
		t.Errorf("the session is left at %q", level)
	}
}
