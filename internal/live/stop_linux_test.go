package live

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

// A worker stands still at its n-th yield, for longer than its lease and its claim's deadline: a
// virtual machine that was suspended, a long pause of the scheduler. Another process takes over and
// finishes. Then the first one goes on as if nothing had happened.
func TestAWorkerThatStoodStillDoublesNothing(t *testing.T) {
	for name, base := range ledgers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base.Worker, base.Provider = "plain", filepath.Join(t.TempDir(), "provider")
			k := base.watcher(t)
			const points = 20 // a job has as many, see TestAWorkerKilledAtAnyPointDoublesNothing
			var group sync.WaitGroup
			var mu sync.Mutex
			stood := 0
			var played []string
			slots := make(chan struct{}, 4) // two cores
			for n := int64(1); n <= points; n++ {
				slots <- struct{}{}
				group.Go(func() {
					defer func() { <-slots }()
					for try := range 3 { // on a busy machine a job may run out of time before it gets there
						p := base
						p.Conversation, p.Job, p.StopAt = fmt.Sprintf("c%d.%d", n, try), fmt.Sprintf("%d.%d", n, try), n
						still := standStill(t, p)
						mu.Lock()
						played = append(played, p.Conversation)
						if still {
							stood++
						}
						mu.Unlock()
						if still {
							return
						}
					}
				})
			}
			group.Wait()
			for _, c := range played {
				p := base
				p.Conversation = c
				atMostOnce(t, k, p)
			}
			if stood < points-2 {
				t.Errorf("%d of %d stood still", stood, points)
			}
		})
	}
}

// standStill plays p up to where it stops, lets another process finish, and wakes it. It says
// whether p stopped.
func standStill(t *testing.T, p part) bool {
	t.Helper()
	first := stopped(t, p)
	if first == nil {
		return false
	}
	p.StopAt = 0
	time.Sleep(1200 * time.Millisecond) // lease 900 ms, claim 800 ms
	second := p.process(t)
	var complaint strings.Builder
	second.Stderr = &complaint
	if err := second.Start(); err != nil {
		t.Error(err)
		wake(t, first)
		return true
	}
	ended := make(chan error, 1)
	go func() { ended <- second.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%+v: %v: %s", p, err, complaint.String())
		}
		wake(t, first)
	case <-time.After(10 * time.Second):
		// Somebody who stopped while it extended its lease holds SQLite's file, and until it goes
		// on nobody finishes. Now the two are at work at once, and which one ends as stale is open.
		wake(t, first)
		<-ended
	}
	// The job may have been stopped for what was unknown then; somebody runs it again.
	spawn(t, p)
	return true
}

// stopped starts a process that plays p, and returns when it has stopped itself; nil if it ended
// without.
func stopped(t *testing.T, p part) *exec.Cmd {
	t.Helper()
	cmd := p.process(t)
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return nil
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			break
		}
		if bytes.Contains(stat, []byte(") T ")) {
			return cmd
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return nil
}

// wake lets it go on as if nothing had happened, and waits for its end.
func wake(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Error(err)
	}
	// What it says about its job, which is another process's by now, is its own affair.
	if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Error(err)
	}
}

// atMostOnce compares what the provider has with what the ledger says. A call that was made late
// may have been settled late, so nothing need be unknown in the end.
func atMostOnce(t *testing.T, k *runs.Keeper, p part) {
	t.Helper()
	log, err := os.ReadFile(p.Provider)
	if err != nil {
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
		if times > 1 || known[intent] == runs.Committed && times != 1 || known[intent] == "" && known["reply"] == runs.Committed {
			t.Errorf("%s: %s was done %d times and is %q", p.Conversation, intent, times, known[intent])
		}
	}
}
