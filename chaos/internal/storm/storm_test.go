package storm

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencedrun/fencedrun/internal/sabotage"
	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/runs"
)

func TestMain(m *testing.M) {
	if code, ok := Child(); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// rage runs a storm and shows its report.
func rage(t *testing.T, c Config) *Report {
	t.Helper()
	c.Workers, c.Customers = 3, 12 // other tests want the processors, too
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := r.Write(&table); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())
	return r
}

// kept fails the test if something was done twice or lost, or if the storm was none.
func kept(t *testing.T, r *Report) {
	t.Helper()
	if r.Broken() {
		t.Errorf("%d duplicates, %d lost", r.Duplicates, r.Lost)
	}
	if r.Kills == 0 || r.Pauses == 0 || r.Redeliveries == 0 {
		t.Errorf("%d kills, %d pauses, %d redeliveries: no storm", r.Kills, r.Pauses, r.Redeliveries)
	}
	if r.Answers == 0 || r.Refunds == 0 || r.Unanswered != r.Unknown+r.Open+r.Waiting+r.Lost {
		t.Errorf("%d answers, %d refunds; of %d unanswered %d unknown, %d open, %d waiting, %d lost",
			r.Answers, r.Refunds, r.Unanswered, r.Unknown, r.Open, r.Waiting, r.Lost)
	}
}

const short = 5 * time.Second

func TestAStormDoublesAndLosesNothing(t *testing.T) {
	t.Parallel()
	kept(t, rage(t, Config{Duration: short, Seed: 1}))
}

func TestTheSameStormDoublesWithoutTheLibrary(t *testing.T) {
	t.Parallel()
	r := rage(t, Config{Duration: short, Seed: 1, Without: true})
	if r.DuplicateAnswers == 0 || r.DuplicateRefunds == 0 {
		t.Errorf("%d duplicate answers, %d duplicate refunds: the storm would not notice", r.DuplicateAnswers, r.DuplicateRefunds)
	}
	if r.Broken() {
		t.Error("a broken promise of a library that was not there")
	}
}

// A library that forgets a rule is caught, and what happened is shown.
func TestAStormNoticesARuleThatIsOff(t *testing.T) {
	t.Parallel()
	r := rage(t, Config{Duration: short / 2, Seed: 5, off: sabotage.TimeoutMeansFailed.String()})
	shown := strings.Join(r.Evidence, "\n")
	if !r.Broken() || !strings.Contains(shown, "  provider {") || !strings.Contains(shown, "  effect {") {
		t.Errorf("%d duplicates, %d lost; shown:\n%s", r.Duplicates, r.Lost, shown)
	}
}

// A message is lost if neither the provider nor the ledger knows of it; one that the ledger lists
// as open is not.
func TestAMessageThatNobodyKnowsIsLost(t *testing.T) {
	k, err := runs.New(memledger.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	err = k.Do(t.Context(), runs.Job{Queue: "q", ID: "1", Conversation: "c", Inbound: []string{"c.0-0"}, Digest: "d", Reads: runs.AfterBegin},
		func(context.Context) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	r := &Report{Library: true}
	tally := count([]entry{
		{Did: received, Conversation: "c", Message: "c.0-0"}, {Did: received, Conversation: "c", Message: "c.0-1"}, {Did: received, Conversation: "c", Message: "c.0-2"},
	}, r)
	lost, err := (&stage{keeper: k}).account(t.Context(), r, tally, []string{"c.0-2"})
	if err != nil || r.Open != 1 || r.Waiting != 1 || r.Lost != 1 || len(lost) != 1 || !strings.Contains(lost[0].what, "c.0-1") ||
		len(r.Listed) != 1 || r.Listed[0] != "c.0-0 is open: its job is ended success " {
		t.Errorf("%d open, %d waiting, %d lost: %q, %v, %v", r.Open, r.Waiting, r.Lost, r.Listed, lost, err)
	}
}

func service(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		if os.Getenv("FENCEDRUN_TEST_SERVICES") == "required" {
			t.Fatalf("%s is not set, and FENCEDRUN_TEST_SERVICES=required", name)
		}
		t.Skipf("%s is not set: make test starts the servers", name)
	}
	return value
}

func TestAStormOnRealQueuesDoublesAndLosesNothing(t *testing.T) {
	places := map[string]string{River: "FENCEDRUN_TEST_POSTGRES", Asynq: "FENCEDRUN_TEST_REDIS"}
	t.Run("storms", func(t *testing.T) {
		for queue, at := range places {
			t.Run(queue, func(t *testing.T) {
				t.Parallel()
				r := rage(t, Config{Duration: short * 3 / 5, Seed: 2, Queue: queue, Ledger: service(t, at)})
				kept(t, r)
				if r.Cuts == 0 || r.Frames == 0 || r.Drops == 0 {
					t.Errorf("%d cuts of %d frames, %d dropped: no storm", r.Cuts, r.Frames, r.Drops)
				}
			})
		}
	})
	for queue, at := range places {
		t.Run(queue+" is left as it was", func(t *testing.T) {
			if left := leftBehind(t, queue, service(t, at)); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// leftBehind lists what storms have made in a server.
func leftBehind(t *testing.T, queue, url string) (left []string) {
	t.Helper()
	if queue == River {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		rows, err := conn.Query(t.Context(), "SELECT nspname::text FROM pg_namespace WHERE nspname LIKE 'fencedrun_live_%'")
		if err == nil {
			left, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			t.Fatal(err)
		}
		return left
	}
	client, err := dialRedis(url)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	left, err = client.Keys(t.Context(), "*fencedrun_live_*").Result()
	if err != nil {
		t.Fatal(err)
	}
	queues, err := client.SMembers(t.Context(), "asynq:queues").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range queues {
		if strings.HasPrefix(q, "fencedrun_live_") {
			left = append(left, q)
		}
	}
	return left
}

// The judge sees what the storms above never show it.
func TestTheLogDecidesWhatIsADuplicate(t *testing.T) {
	var r Report
	tally := count([]entry{
		{Did: received, Conversation: "c", Message: "c.0-0"}, {Did: received, Conversation: "c", Message: "c.0-1"},
		{Did: received, Conversation: "c", Message: "c.0-2"},
		{Did: replied, Conversation: "c", Answers: []string{"c.0-0", "c.0-1"}, Key: "k1"}, {Did: replied, Conversation: "c", Answers: []string{"c.0-1"}, Key: "k2"},
		{Did: refunded, Conversation: "c", Object: "c.0"}, {Did: refunded, Conversation: "c", Object: "c.0"}, {Did: refunded, Conversation: "c", Object: "c.1"},
	}, &r)
	if r.Messages != 3 || r.Answers != 3 || r.Refunds != 3 || r.DuplicateAnswers != 1 || r.DuplicateRefunds != 1 || r.Duplicates != 2 || r.Unanswered != 1 {
		t.Errorf("counted %+v", r)
	}
	if len(tally.twice) != 2 || !tally.keys["k1"] || tally.unanswered[0].Message != "c.0-2" {
		t.Errorf("tallied %+v", tally)
	}
	if r.Library = true; !r.Broken() {
		t.Error("duplicates with the library break no promise")
	}
	if lost := (Report{Library: true, Lost: 1}); !lost.Broken() {
		t.Error("a silent loss with the library breaks no promise")
	}
}

func TestAStormThatCannotBeginSaysWhy(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]Config{
		"queue \"sqs\" is none of":      {Queue: "sqs", Duration: short},
		"give its URL":                  {Queue: Asynq, Duration: short},
		"lives on postgres":             {Queue: River, QueueURL: "redis://localhost", Duration: short},
		"means nothing with queue":      {QueueURL: "redis://localhost", Duration: short},
		"begins neither with":           {Ledger: "mysql://localhost", Duration: short},
		"asks for TLS":                  {Ledger: "rediss://localhost", Duration: short},
		"names a socket":                {Ledger: "postgres:///x?host=/tmp", Duration: short},
		"Duration must be":              {},
		"ledger's server cannot be use": {Ledger: "postgres://nobody@127.0.0.1:1/x", Duration: short},
		"queue's server cannot be use":  {Queue: Asynq, QueueURL: "redis://127.0.0.1:1", Duration: short},
	} {
		_, err := Run(t.Context(), c)
		if setup := (*SetupError)(nil); !errors.As(err, &setup) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}

// Ctrl-C ends a storm with its processes, and leaves nothing behind.
func TestAnInterruptedStormLeavesNothingBehind(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	time.AfterFunc(1200*time.Millisecond, func() { cancel(stopped) })
	if _, err := Run(ctx, Config{Duration: time.Hour, Seed: 3}); !errors.Is(err, stopped) {
		t.Errorf("Run returned %v", err)
	}
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
