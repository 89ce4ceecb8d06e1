package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/internal/services/private"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
	"github.com/fencedrun/fencedrun/ledger/redisledger"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
	"github.com/fencedrun/fencedrun/runs"
)

// A worker kills itself at its n-th yield: before and after every call of the ledger, before,
// within and after the effect, and when its handler has returned. A fresh process takes the
// redelivery. Whatever n is, the effect was done at most once, and either it is known to have
// been done or it is visibly unknown.

// part is what a process of a test plays; it is handed over in the environment.
type part struct {
	Worker       string // "plain", "river" or "asynq"
	Ledger       string // "postgres", "redis" or "sqlite"
	URL          string // of the ledger's server; of its file
	Space        string // its schema or prefix
	Queue        string // where the queue is
	QueueName    string // schema or queue
	Conversation string
	Provider     string // the provider's log
	Job          string
	KillAt       int64 // the yield at which it kills itself; 0 never
	StopAt       int64 // the yield at which it stops until somebody wakes it; 0 never
}

const partVariable = "FENCEDRUN_LIVE_PART"

var workers = map[string]func(context.Context, *worker) error{
	"plain": plainWorker, "river-postgres": workRiverOnPostgres, "river-sqlite": workRiverOnSQLite, "asynq": workAsynq, "racer": race,
}

func TestMain(m *testing.M) {
	text := os.Getenv(partVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	w := &worker{}
	if err := json.Unmarshal([]byte(text), &w.part); err != nil {
		panic(err)
	}
	// A process that hangs must not make its test hang: its context ends, and if that is not
	// enough, it says where it stands. Whoever waits for Asynq's recoverer needs three minutes.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	time.AfterFunc(4*time.Minute, func() { panic("still at work after its time was over") })
	err := workers[w.Worker](ctx, w)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// worker is a process that may kill itself.
type worker struct {
	part
	yields atomic.Int64
}

func (w *worker) yield() {
	switch w.yields.Add(1) {
	case w.KillAt:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until it strikes
	case w.StopAt:
		// The signal may strike a moment later: what yielded waits until it has been woken, so that
		// it does not go on into a write, and hold a file that way.
		woken := make(chan os.Signal, 1)
		signal.Notify(woken, syscall.SIGCONT)
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-woken
		signal.Stop(woken)
	}
}

// The times of these tests: an unknown outcome is seen within a second.
func brisk() *runs.Config {
	return &runs.Config{
		Lease: 900 * time.Millisecond, Beat: 300 * time.Millisecond, EffectTimeout: 400 * time.Millisecond, ClaimDeadline: 800 * time.Millisecond,
		Quiet: 100 * time.Millisecond, PollMin: time.Millisecond, PollMax: 20 * time.Millisecond,
	}
}

func (w *worker) keeper(ctx context.Context) (*runs.Keeper, error) {
	store, err := w.open(ctx)
	if err != nil {
		return nil, err
	}
	return runs.New(killing{store, w}, brisk())
}

func (p *part) open(ctx context.Context) (ledger.Store, error) {
	switch p.Ledger {
	case "postgres":
		return pgledger.Connect(ctx, p.URL, &pgledger.Config{Schema: p.Space})
	case "redis":
		return redisledger.Connect(ctx, p.URL, &redisledger.Config{Prefix: p.Space})
	default:
		return sqliteledger.Open(ctx, p.URL, nil)
	}
}

// watcher is the test's own keeper on the part's ledger.
func (p *part) watcher(t *testing.T) *runs.Keeper {
	t.Helper()
	store, err := p.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k, err := runs.New(store, brisk())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

// handler answers m1, and tags.
func (w *worker) handler(ctx context.Context) error {
	for _, e := range []runs.Effect{{Intent: "reply", Key: runs.ID("m1")}, {Intent: "tag", Key: runs.ID("done")}} {
		err := runs.FromContext(ctx).Once(ctx, e, func(context.Context, *runs.Call) error {
			w.yield()
			if err := w.provide(e.Intent); err != nil {
				return err
			}
			w.yield()
			return nil
		})
		if err != nil {
			return err
		}
	}
	w.yield()
	return nil
}

// provide is the provider: one line at the end of a file, and no key.
func (w *worker) provide(what string) error {
	f, err := os.OpenFile(w.Provider, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s %s\n", w.Conversation, what)
	return errors.Join(err, f.Close())
}

// plainWorker is a worker without a queue: it delivers its job until the verdict is final.
func plainWorker(ctx context.Context, w *worker) error {
	k, err := w.keeper(ctx)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		v := k.Deliver(ctx, job(w.Conversation, w.Job), runs.Delivery{}, w.handler)
		w.yield()
		switch v.Action {
		case runs.ActionDone, runs.ActionPark:
			fmt.Println(v.Action, v.Reason)
			return k.Close()
		case runs.ActionComeBack, runs.ActionRetry, runs.ActionReturn:
			time.Sleep(50 * time.Millisecond)
		default:
			return fmt.Errorf("%s %s: %w", v.Action, v.Reason, v.Err)
		}
	}
	return ctx.Err()
}

// killing lets the worker yield before and after each call of its ledger.
type killing struct {
	ledger.Store
	w *worker
}

func (k killing) Load(ctx context.Context, conv string, q ledger.Query) (ledger.Snapshot, error) {
	k.w.yield()
	defer k.w.yield()
	return k.Store.Load(ctx, conv, q)
}

func (k killing) Apply(ctx context.Context, conv string, w ledger.Write) (ledger.Result, error) {
	k.w.yield()
	defer k.w.yield()
	return k.Store.Apply(ctx, conv, w)
}

// process is the command that plays p.
func (p *part) process(t *testing.T) *exec.Cmd {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // there is nothing in it that cannot be written
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), partVariable+"="+string(text))
	return cmd
}

// spawn runs a process that plays p; killed says that it killed itself.
func spawn(t *testing.T, p part) (out string, killed bool) {
	t.Helper()
	cmd := p.process(t)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	printed, err := cmd.Output()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
		return "", true
	}
	if err != nil {
		t.Fatalf("%+v: %v: %s", p, err, complaint.String())
	}
	return strings.TrimSpace(string(printed)), false
}

// ledgers returns the ledgers of these tests, each in a place of its own.
func ledgers(t *testing.T) map[string]part {
	t.Helper()
	at := private.ServicePostgres.Need(t)
	redisAt := private.ServiceRedis.Need(t)
	return map[string]part{
		"postgres": {Ledger: "postgres", URL: at, Space: schemaOn(t, pool(t, at))},
		"redis":    {Ledger: "redis", URL: redisAt, Space: prefixOn(t, redisAt)},
		"sqlite":   {Ledger: "sqlite", URL: filepath.Join(t.TempDir(), "ledger.db")},
	}
}

func TestAWorkerKilledAtAnyPointDoublesNothing(t *testing.T) {
	for name, base := range ledgers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base.Worker, base.Provider = "plain", filepath.Join(t.TempDir(), "provider")
			k := base.watcher(t)
			kills, done, unknown := 0, 0, 0
			for n := int64(1); ; n++ {
				p := base
				p.Conversation, p.Job, p.KillAt = fmt.Sprint("c", n), fmt.Sprint(n), n
				out, killed := spawn(t, p)
				if killed {
					kills++
					p.KillAt = 0
					out, _ = spawn(t, p)
				}
				u := judge(t, k, p, out)
				unknown += u
				done += 1 - min(u, 1)
				if !killed {
					break
				}
			}
			t.Logf("%d kills: %d jobs done, %d effects unknown", kills, done, unknown)
			// Begin, twice claim, effect, settle, and End, each with a before and an after.
			if kills < 16 || done < 8 || unknown == 0 {
				t.Error("the kills missed most of the job")
			}
		})
	}
}

// judge compares what the provider has with what the ledger says, and returns how many effects are
// unknown.
func judge(t *testing.T, k *runs.Keeper, p part, out string) (unknown int) {
	t.Helper()
	log, err := os.ReadFile(p.Provider)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	h, err := k.History(t.Context(), p.Conversation)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]runs.State{}
	for _, e := range h.Effects {
		known[e.Intent] = e.State()
	}
	for _, intent := range []string{"reply", "tag"} {
		times := timesDone(log, p.Conversation, intent)
		switch state := known[intent]; {
		case times > 1:
			t.Errorf("killed at %d: %s was done %d times", p.KillAt, intent, times)
		case state == runs.Ambiguous:
			unknown++
		case state == runs.Committed && times == 1:
		case state == "" && times == 0 && (known["reply"] == runs.Ambiguous):
		default:
			t.Errorf("job %s: %s was done %d times and is %q; it came to %q", p.Job, intent, times, state, out)
		}
	}
	if (unknown > 0) != strings.HasPrefix(out, "park") {
		t.Errorf("job %s came to %q with %d unknown effects", p.Job, out, unknown)
	}
	return unknown
}

// timesDone counts in the provider's log. It goes line by line: a call that was made again stands
// right behind the first.
func timesDone(log []byte, conversation, intent string) (n int) {
	for line := range strings.Lines(string(log)) {
		if line == conversation+" "+intent+"\n" {
			n++
		}
	}
	return n
}

func TestTheProvidersLogIsCountedLineByLine(t *testing.T) {
	log := []byte("c1 reply\nc1 reply\nc11 reply\nc1 reply\nc1 tag\n")
	if n := timesDone(log, "c1", "reply"); n != 3 {
		t.Errorf("the reply was done %d times, want 3", n)
	}
}

func prefixOn(t *testing.T, at string) string {
	t.Helper()
	options, err := redis.ParseURL(at)
	if err != nil {
		t.Fatal(err)
	}
	prefix := fmt.Sprintf("live-%d-%d", os.Getpid(), time.Now().UnixNano())
	t.Cleanup(func() { removeKeys(t, options, prefix) })
	return prefix
}
