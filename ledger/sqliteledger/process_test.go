package sqliteledger_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/key"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
)

// A child is this test binary, run again to play one part.
const partVariable = "SQLITELEDGER_PART"

var parts = map[string]func(ctx context.Context, dir string) error{
	"open":  openPart,
	"claim": claimPart,
	"die":   diePart,
}

func TestMain(m *testing.M) {
	part, dir, ok := strings.Cut(os.Getenv(partVariable), " ")
	if !ok {
		os.Exit(m.Run())
	}
	if err := parts[part](context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func child(t *testing.T, part, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), partVariable+"="+part+" "+dir)
	return cmd
}

// children runs n processes at once and returns what they printed.
func children(t *testing.T, n int, part, dir string) []string {
	t.Helper()
	outs := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			cmd := child(t, part, dir)
			var complaint strings.Builder
			cmd.Stderr = &complaint
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("process %d: %v: %s", i, err, complaint.String())
			}
			outs[i] = string(out)
		})
	}
	wg.Wait()
	return outs
}

func ledgerIn(dir string) string { return filepath.Join(dir, "ledger.db") }

func openPart(ctx context.Context, dir string) error {
	store, err := sqliteledger.Open(ctx, ledgerIn(dir), nil)
	if err != nil {
		return err
	}
	defer store.Close()
	// Each leaves a mark of its own.
	r, err := store.Apply(ctx, fmt.Sprint(os.Getpid()), ledger.Write{NewTag: "t", Head: ledger.NewRow("", noIndex, []byte("h")), Durable: true})
	if err == nil && !r.Applied {
		err = errors.New("refused")
	}
	return err
}

func TestTwentyProcessesMakeOneLedger(t *testing.T) {
	dir := t.TempDir()
	children(t, 20, "open", dir)
	if rows := count(t, ledgerIn(dir), "select count(*) from conversation"); rows != 20 {
		t.Errorf("%d of 20 processes left their mark", rows)
	}
	if v := count(t, ledgerIn(dir), "pragma user_version"); v != 1 {
		t.Errorf("the tables are of version %d", v)
	}
}

func count(t *testing.T, path, query string) (n int) {
	t.Helper()
	db := database(t, path)
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

const goroutines = 50

// claimPart is a process of a worker: one job, and fifty goroutines that all want the same
// effect done. The provider is a file.
func claimPart(ctx context.Context, dir string) error {
	store, err := sqliteledger.Open(ctx, ledgerIn(dir), nil)
	if err != nil {
		return err
	}
	defer store.Close()
	s := seam.Real()
	l := ledger.New(store, ledger.Options{Seam: s, Rules: fence.Rules{Lease: 60_000, Quiet: 120_000, Retention: 1 << 40, MaxCalls: 3}})
	h, v, _, err := l.Begin(ctx, "c", fence.BeginRequest{
		Run: fence.RunKey{Queue: "q", ID: fmt.Sprint(os.Getpid())}, Mode: fence.Supersede, Reads: fence.AfterBegin,
		Identity: fence.Identity{Nonce: s.NewID()},
	})
	if err != nil || h == nil {
		return fmt.Errorf("begin: %+v, %w", v, err)
	}
	defer h.Close()
	var mu sync.Mutex
	var failures []error
	told := map[string]int{}
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			result, err := once(ctx, h, s, dir)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failures = append(failures, err)
			}
			told[result]++
		})
	}
	wg.Wait()
	if len(failures) > 0 {
		return errors.Join(failures...)
	}
	return json.NewEncoder(os.Stdout).Encode(told)
}

// once does the effect, or waits for who does it.
func once(ctx context.Context, h *ledger.Handle, s *seam.Seam, dir string) (string, error) {
	k := key.ID("m1")
	for {
		v, _, err := h.Claim(ctx, fence.ClaimRequest{
			Effect: key.EffectID("", "c", "reply", k), Intent: "reply", Key: k.Canonical(), KeyID: "m1", Answering: true, Distinct: true,
			Claim: s.NewID(), For: 60_000,
		})
		switch {
		case err != nil:
			return "", err
		case v.Replay != nil:
			return string(v.Replay.Result), nil
		case v.Call != nil:
			if err := provide(dir); err != nil {
				return "", err
			}
			result := fmt.Sprint("done by ", os.Getpid())
			_, _, err := h.Settle(ctx, fence.SettleRequest{Effect: v.Effect.ID, Claim: v.Call.Claim, State: fence.Committed, Result: []byte(result), Granted: v.Effect})
			return result, err
		case v.Refusal.Reason != fence.ReasonInFlight:
			return "", fmt.Errorf("refused: %+v", *v.Refusal)
		}
		if err := s.Sleep(ctx, 5*time.Millisecond+s.Jitter(20*time.Millisecond)); err != nil {
			return "", err
		}
	}
}

// provide is the effect: it appends a line to the provider's log.
func provide(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "provider"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "sent by %d\n", os.Getpid())
	time.Sleep(20 * time.Millisecond) // time for the others to find it pending
	return errors.Join(err, f.Close())
}

func TestFiftyGoroutinesOfTwentyProcessesSendOnce(t *testing.T) {
	dir := t.TempDir()
	told := map[string]int{}
	for i, out := range children(t, 20, "claim", dir) {
		var by map[string]int
		if err := json.Unmarshal([]byte(out), &by); err != nil {
			t.Fatalf("process %d printed %q: %v", i, out, err)
		}
		for result, n := range by {
			told[result] += n
		}
	}
	log, err := os.ReadFile(filepath.Join(dir, "provider"))
	if err != nil || strings.Count(string(log), "\n") != 1 {
		t.Errorf("the provider counts %q, %v, want one", log, err)
	}
	if len(told) != 1 {
		t.Errorf("%d goroutines were told %v, want one result", 20*goroutines, told)
	}
	for result, n := range told {
		if n != 20*goroutines || result == "" {
			t.Errorf("%d goroutines were told %q, want %d", n, result, 20*goroutines)
		}
	}
}

// diePart writes without flushing, says so, and waits to be killed with a transaction open.
func diePart(ctx context.Context, dir string) error {
	store, err := sqliteledger.Open(ctx, ledgerIn(dir), nil)
	if err != nil {
		return err
	}
	tag := ""
	for i := range 100 {
		next := fmt.Sprint(i)
		w := change(tag, next, false)
		w.Put = []ledger.Row{ledger.NewRow("k"+next, noIndex, []byte(next))}
		if r, err := store.Apply(ctx, "c", w); err != nil || !r.Applied {
			return fmt.Errorf("%+v, %w", r, err)
		}
		tag = next
	}
	return store.WithLock(ctx, "c", func(tx ledger.Tx) error {
		if _, err := tx.Apply(ctx, "c", change(tag, "never", true)); err != nil {
			return err
		}
		fmt.Println("written")
		select {}
	})
}

func TestAKilledProcessLosesNothingThatWasAcknowledged(t *testing.T) {
	dir := t.TempDir()
	cmd := child(t, "die", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "written\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	store := open(t, ledgerIn(dir))
	snap, err := store.Load(t.Context(), "c", ledger.Query{})
	if err != nil || snap.Tag != "99" {
		t.Errorf("after the kill the tag is %q, %v, want 99: all that was acknowledged and nothing else", snap.Tag, err)
	}
	rows, err := store.Scan(t.Context(), ledger.Scan{Kind: ledger.ScanRows, Conversation: "c", Limit: 1000})
	if err != nil || len(rows) != 100 {
		t.Errorf("%d rows, %v, want 100", len(rows), err)
	}
	must(t, store, change("99", "100", true)) // its lock is gone
}
