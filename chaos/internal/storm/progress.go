package storm

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// tell writes a line a second until the function that it returns is called, which may be more than
// once.
func (s *stage) tell() (end func()) {
	over, gone := make(chan struct{}), make(chan struct{})
	began := time.Now()
	last := 0
	write := func(line string) {
		if !s.config.Terminal {
			fmt.Fprintln(s.config.Progress, line)
			return
		}
		fmt.Fprintf(s.config.Progress, "\r%-*s", last, line)
		last = len(line)
	}
	go func() {
		defer close(gone)
		for {
			select {
			case <-over:
				if s.config.Terminal {
					fmt.Fprintln(s.config.Progress)
				}
				return
			case <-time.After(time.Second):
			}
			at := time.Since(began)
			phase := "storm"
			if at > s.config.Duration {
				phase = "calm"
			}
			c := &s.counts
			line := fmt.Sprintf("%3.0f s %-5s  jobs %d, not done %d; kills %d, pauses %d, cuts %d, redeliveries %d, dropped %d",
				at.Seconds(), phase, s.number.Load(), s.backlog.Load(), c.kills.Load(), c.pauses.Load(),
				c.cuts.Load()+c.delays.Load()+c.silences.Load(), c.redeliveries.Load(), c.drops.Load())
			if len(s.machines) > 0 {
				line += fmt.Sprintf("; servers stopped %d, restarted %d", c.stops.Load(), c.restarts.Load()+c.crashes.Load())
			}
			write(line)
		}
	}()
	return sync.OnceFunc(func() {
		close(over)
		<-gone
	})
}

// Write writes the report as a table for people.
func (r *Report) Write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, value any, about string) { fmt.Fprintf(t, "%s\t%v\t%s\n", name, value, about) }
	row("WHAT", "VALUE", "MEANING")
	row("seed", r.Seed, "decides what struck whom, not when")
	if r.Library {
		row("library", "with", "")
	} else {
		row("library", "without", "handlers call the provider directly")
	}
	row("queue", r.Queue, "")
	whose := ""
	if r.Own {
		whose = "the servers were the storm's own"
	}
	row("ledger", r.Ledger, whose)
	row("seconds", fmt.Sprintf("%.0f", r.Seconds), "with the draining")
	row("kills", r.Kills, fmt.Sprintf("SIGKILL to one of %d workers", r.Workers))
	row("pauses", r.Pauses, "SIGSTOP for longer than lease and claim deadline, then SIGCONT")
	row("cuts", r.Cuts, "connections to the ledger, before or after a frame")
	row("delayed", r.Delays, "frames to or from the ledger")
	row("silences", r.Silences, "connections on which nothing came any more, and then they broke")
	row("frames", r.Frames, "between workers and ledger")
	row("dropped", r.Drops, "connections, by the server")
	if r.Own {
		row("server stops", r.Stops, "SIGSTOP to all of a server for longer than lease and claim deadline, then SIGCONT")
		row("server restarts", r.Restarts, "killed as by a crash, and started on what it left behind")
		row("backend kills", r.Crashes, "SIGKILL to one process of Postgres, which ends all others and recovers")
	}
	row("scripts flushed", r.Forgets, "by Redis")
	row("redeliveries", r.Redeliveries, "of jobs that a worker had in its hands")
	row("orphans", r.Orphans, "delivered again because no worker had them any more")
	if r.Exits > 0 {
		row("worker exits", r.Exits, "by themselves; the last: "+r.LastExit)
	}
	row("jobs", r.Jobs, fmt.Sprintf("in %d deliveries", r.Deliveries))
	row("messages", r.Messages, "")
	row("answers", r.Answers, "by the provider's log")
	row("refunds", r.Refunds, "by the provider's log")
	row("duplicates", r.Duplicates, fmt.Sprintf("messages answered again %d, objects refunded again %d", r.DuplicateAnswers, r.DuplicateRefunds))
	if !r.Library {
		row("unanswered", r.Unanswered, "messages")
		return t.Flush()
	}
	row("unknown", r.Unknown, "messages whose answer may have been sent: a person decides")
	row("open", r.Open, "messages that the ledger lists as open")
	if r.Waiting > 0 {
		row("waiting", r.Waiting, fmt.Sprintf("messages whose job was not done %v after the storm", drainLimit))
	}
	row("lost", r.Lost, "messages of which nothing is known")
	row("unknown effects", r.UnknownEffects, fmt.Sprintf("of which %d had happened", r.UnknownHappened))
	row("parked jobs", r.Parked, "")
	if err := t.Flush(); err != nil {
		return err
	}
	for _, line := range append(slices.Clone(r.Listed), r.Evidence...) {
		fmt.Fprintln(w, line)
	}
	return nil
}
