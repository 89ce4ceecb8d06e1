package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	riverruns "github.com/fencedrun/fencedrun/adapters/river"
	"github.com/fencedrun/fencedrun/runs"
)

func init() { //nolint:gochecknoinits // the processes of a test are named where they are written
	workers["river-rescued"] = workRescued
}

// workRescued is workRiver with River's own times, but for those after which its rescuer takes a job.
// Nobody tells the queue that a worker is dead: another client has to be elected, and its rescuer has to
// find out. It works whatever there is until its own job is final.
func workRescued(ctx context.Context, w *worker) error {
	pool, err := pgxpool.New(ctx, w.Queue)
	if err != nil {
		return err
	}
	defer pool.Close()
	k, err := w.keeper(ctx)
	if err != nil {
		return err
	}
	plugin, err := riverruns.NewPlugin(k, &riverruns.Config{Reads: runs.AfterBegin, Inbound: riverruns.FromArgs, Schema: w.QueueName})
	if err != nil {
		return err
	}
	config := riverConfig(w.QueueName, plugin)
	config.JobTimeout, config.RescueStuckJobsAfter = time.Second, 2*time.Second
	config.RetryPolicy = atOnce{}
	config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 4}}
	config.Workers = river.NewWorkers()
	river.AddWorker(config.Workers, river.WorkFunc(func(ctx context.Context, job *river.Job[killArgs]) error {
		if job.Args.C == w.Conversation {
			return w.handler(ctx)
		}
		other := &worker{part: w.part}
		other.Conversation = job.Args.C
		return other.handler(ctx)
	}))
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	id, err := strconv.ParseInt(w.Job, 10, 64)
	if err != nil {
		return err
	}
	for {
		row, err := client.JobGet(ctx, id)
		if err != nil {
			return err
		}
		if row.FinalizedAt != nil {
			out := map[rivertype.JobState]string{rivertype.JobStateCompleted: "done", rivertype.JobStateCancelled: "park"}[row.State]
			fmt.Println(out, row.State)
			return errors.Join(client.Stop(ctx), k.Close())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// The honest wait: workers are killed in the middle of their jobs, and River's rescuer, in another
// process, brings the jobs back.
func TestRiversRescuerBringsBackTheJobsOfKilledWorkers(t *testing.T) {
	t.Parallel()
	q := queues(t)["river-postgres"](t)
	q.Worker, q.Provider = "river-rescued", filepath.Join(t.TempDir(), "provider")
	k := q.watcher(t)
	var parts []part
	// Of about twenty: Begin, the claims, the effects, the settles and End are all within.
	for n := int64(2); n <= 20; n += 3 {
		p := q.part
		p.Conversation, p.KillAt = fmt.Sprint("c", n), n
		p.Job = q.insert(p.Conversation)
		if _, killed := spawn(t, p); !killed {
			break
		}
		p.KillAt = 0
		parts = append(parts, p)
	}
	if len(parts) < 5 {
		t.Fatalf("%d workers were killed, want at least 5", len(parts))
	}

	began := time.Now()
	var wait sync.WaitGroup
	out := make([]string, len(parts))
	for i := range 2 { // one is elected; both work
		wait.Go(func() { out[i], _ = spawn(t, parts[i]) })
	}
	wait.Wait()
	waited := time.Since(began)
	unknown := 0
	for i, p := range parts {
		if i >= 2 {
			out[i], _ = spawn(t, p)
		}
		unknown += judge(t, k, p, out[i])
		row := rowOf(t, p)
		if !strings.Contains(row, "Stuck job rescued by JobRescuer") || !strings.Contains(row, `"river:rescue_count": 1`) {
			t.Errorf("job %s was not brought back by the rescuer: %s", p.Job, row)
		}
	}
	t.Logf("%d workers killed; rescued after %.0f s; %d effects unknown", len(parts), waited.Seconds(), unknown)
	if unknown == 0 || unknown == len(parts) {
		t.Errorf("%d of %d jobs have an unknown effect: the kills missed most of the job", unknown, len(parts))
	}
}

// rowOf is what River says of a job's errors and metadata.
func rowOf(t *testing.T, p part) string {
	t.Helper()
	var text string
	err := pool(t, p.URL).QueryRow(t.Context(),
		"select coalesce(array_to_string(errors, ' '), '') || metadata::text from "+p.QueueName+".river_job where id = "+p.Job).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Each process dies after the one before it, and before it has recorded anything new. What the first one
// left unknown stays unknown until somebody decides, and is done by nobody else.
func TestF07UnknownStaysUnknownOverAnyNumberOfKills(t *testing.T) {
	t.Parallel()
	q := queues(t)["river-postgres"](t)
	q.Provider = filepath.Join(t.TempDir(), "provider")
	k := q.watcher(t)
	client, err := river.NewClient(riverpgxv5.New(pool(t, q.URL)), &river.Config{Schema: q.QueueName})
	if err != nil {
		t.Fatal(err)
	}
	first, later, decided := 0, 0, 0
	for n := int64(3); ; n += 2 {
		p := q.part
		p.Conversation, p.KillAt = fmt.Sprint("c", n), n
		p.Job = q.insert(p.Conversation)
		_, killed := spawn(t, p)
		if !killed {
			break
		}
		first++
		for at := range int64(2) {
			q.again(p.Job)
			p.KillAt = at + 1 // before its Begin, and right after
			if _, killed := spawn(t, p); killed {
				later++
			}
		}
		q.again(p.Job)
		p.KillAt = 0
		out, _ := spawn(t, p)
		if judge(t, k, p, out) == 0 {
			continue
		}
		decided += settle(t, k, p)
		id, err := strconv.ParseInt(p.Job, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.JobRetry(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		out, _ = spawn(t, p)
		if judge(t, k, p, out) != 0 || out != "done completed" {
			t.Errorf("killed at %d and decided: %s", n, out)
		}
	}
	t.Logf("%d first kills, %d later ones, %d unknown effects decided", first, later, decided)
	if first < 7 || later < first || decided == 0 {
		t.Error("the kills missed most of the job")
	}
}

// settle is a person who looks into the provider's log and says what happened to what is unknown.
func settle(t *testing.T, k *runs.Keeper, p part) int {
	t.Helper()
	log, err := os.ReadFile(p.Provider)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	found, err := k.Unresolved(t.Context(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, u := range found {
		if u.Conversation != p.Conversation {
			continue
		}
		happened := strings.Contains("\n"+string(log), "\n"+p.Conversation+" "+u.Effect.Intent+"\n")
		if _, _, err := k.Resolve(t.Context(), u.Conversation, u.Effect.ID, runs.Resolution{Happened: happened, By: "test"}); err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}
