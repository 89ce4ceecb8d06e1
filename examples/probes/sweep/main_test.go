package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencedrun/fencedrun/examples/probes/internal/lossy"
	"github.com/fencedrun/fencedrun/examples/probes/stripe"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
	"github.com/fencedrun/fencedrun/runs"
)

func setting(name string) string { return "the " + name }

// books is a Stripe that has no refunds.
func books(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && r.URL.Path == "/v1/refunds" && r.Header.Get("Authorization") == "Bearer the STRIPE_KEY" {
		_, _ = io.WriteString(w, `{"object": "list", "has_more": false, "data": []}`)
		return
	}
	w.WriteHeader(http.StatusInternalServerError)
}

// work is a worker process that leaves two unknown outcomes: a refund, and something that cannot be asked about.
func work(t *testing.T, store ledger.Store) {
	t.Helper()
	keeper, err := runs.New(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	refunds := &stripe.Refunds{Client: (&lossy.Network{Next: []lossy.Loss{lossy.Request}}).Client()}
	job := runs.Job{Queue: "support", ID: "job-1", Conversation: "thread-7", NoInbound: true, Reads: runs.AfterBegin}
	keeper.Deliver(t.Context(), job, runs.Delivery{}, func(ctx context.Context) error {
		_, err := refunds.Once(ctx, runs.Key("order", "A-1"), stripe.Deal{PaymentIntent: "pi_1", Amount: 990})
		return errors.Join(err, runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "call", Key: runs.ID("kim")}, func(context.Context, *runs.Call) error {
			return errors.New("the line is dead")
		}))
	})
	if err := keeper.Close(); err != nil {
		t.Fatal(err)
	}
}

// kept is a ledger that outlives the process that closes it.
type kept struct{ ledger.Store }

func (kept) Close() error { return nil }

func TestTheProgramSettlesWhatAWorkerLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kept{memledger.New()}
		work(t, store)
		network := &lossy.Network{Server: http.HandlerFunc(books)}
		want := func(line string) {
			t.Helper()
			var out bytes.Buffer
			if err := sweep(t.Context(), store, intents(network.Client(), setting), &out); err != nil || out.String() != line+"\n" {
				t.Errorf("got %q, %v; want %q", out.String(), err, line)
			}
		}
		want("asked 0: 0 had happened, 0 had not, 0 stay unknown; too early for 1; 1 wait for a person")
		time.Sleep(5 * time.Minute)
		want("asked 1: 0 had happened, 1 had not, 0 stay unknown; too early for 0; 1 wait for a person")
		want("asked 0: 0 had happened, 0 had not, 0 stay unknown; too early for 0; 1 wait for a person")
	})
}

func TestTheProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.sqlite3")
	call := func(args ...string) (status int, said string) {
		var out bytes.Buffer
		status = run(t.Context(), args, &out, &out)
		return status, out.String()
	}
	if status, said := call(); status != 2 || !strings.HasPrefix(said, "usage: ") {
		t.Errorf("no ledger: %d %q", status, said)
	}
	if status, said := call(path); status != 1 || !strings.Contains(said, "no such file") {
		t.Errorf("a ledger that is not there: %d %q", status, said)
	}
	store, err := sqliteledger.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	work(t, store)
	if status, said := call(path); status != 0 || !strings.Contains(said, "too early for 1; 1 wait for a person") {
		t.Errorf("%d %q", status, said)
	}
}
