package live

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/chaos/proxy"
	"github.com/fencedrun/fencedrun/internal/sabotage"
	"github.com/fencedrun/fencedrun/runs"
)

// Cases F13 and F14: the connection breaks at some frame of Begin, claim, settle or End, before or
// after the frame went on. The driver cannot tell whether its write was made. The library can.

// frames counts how many frames a whole job takes on a warm connection, each way.
func frames(t *testing.T, s *server, k *runs.Keeper, p *proxy.Proxy, prov *provider) map[proxy.Direction]int {
	t.Helper()
	counts := map[proxy.Direction]int{}
	count := func(to proxy.Direction) {
		p.Arm(proxy.Fault{Frame: 1 << 30, Direction: to, Match: func(proxy.Frame) bool {
			counts[to]++ // under the proxy's lock
			return false
		}})
	}
	count(proxy.ToServer)
	count(proxy.ToClient)
	if err := k.Do(t.Context(), job("counted", s.name), prov.replies("counted")); err != nil {
		t.Fatal(err)
	}
	p.Disarm()
	return counts
}

// sweep cuts a job at every frame, lets the queue deliver it again, and returns what went wrong.
func sweep(t *testing.T, s *server, off sabotage.Set) (cuts int, wrong []string) {
	t.Helper()
	p, err := proxy.Listen(s.protocol, s.at)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	prov := &provider{}
	clean := s.keeper(t, s.at, off)
	k := s.keeper(t, p.Addr(), off)
	// Statements are prepared and scripts loaded.
	if err := k.Do(t.Context(), job("warm", 0), prov.replies("warm")); err != nil {
		t.Fatal(err)
	}
	counts := frames(t, s, k, p, prov)
	if counts[proxy.ToServer] < 4 || counts[proxy.ToClient] < 4 {
		t.Fatalf("a job of four changes took %v frames", counts)
	}
	again, want := 0, 0
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for to, n := range counts {
		for frame := 1; frame <= n; frame++ {
			for _, after := range []bool{false, true} {
				want++
				c := fmt.Sprintf("%v %d after=%v", to, frame, after)
				hit := p.Arm(proxy.Fault{Frame: frame, Direction: to, After: after})
				err := k.Do(t.Context(), job(c, c), prov.replies(c))
				p.Disarm()
				if _, struck := <-hit; struck {
					cuts++
				}
				if err != nil {
					// The queue delivers again, to a process with a good connection.
					again++
					err = clean.Do(t.Context(), job(c, c), prov.replies(c))
				}
				if err != nil {
					complain("%s: %v", c, err)
				}
				if n := prov.times(c); n != 1 {
					complain("%s: answered %d times", c, n)
				}
				if st := state(t, clean, c); st != runs.Committed {
					complain("%s: %s", c, st)
				}
			}
		}
	}
	t.Logf("%d cuts at %v frames, %d redeliveries", cuts, counts, again)
	if cuts < want*9/10 {
		complain("%d cuts of %d", cuts, want)
	}
	return cuts, wrong
}

func TestAConnectionCutAtAnyFrameDoublesNothing(t *testing.T) {
	servers(t, func(t *testing.T, s *server) {
		_, wrong := sweep(t, s, sabotage.Set{})
		for _, w := range wrong {
			t.Error(w)
		}
	})
}

// Without the rule that a claim knows its own lost answer, the sweep complains.
func TestTheSweepWouldNotice(t *testing.T) {
	servers(t, func(t *testing.T, s *server) {
		if s.resends {
			t.Skip("go-redis sends the claim again, and the store knows it by its tag: nothing is lost above")
		}
		if _, wrong := sweep(t, s, sabotage.Of(sabotage.OwnClaimUnknown)); len(wrong) == 0 {
			t.Error("nothing went wrong")
		}
	})
}

// An answer that does not come, on a connection that stays: the caller's ctx, or the driver's own
// patience, ends the question. go-redis then sends the same command again by itself.
func TestAnAnswerThatNeverComesDoublesNothing(t *testing.T) {
	servers(t, func(t *testing.T, s *server) {
		p, err := proxy.Listen(s.protocol, s.at)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		prov := &provider{}
		clean := s.keeper(t, s.at, sabotage.Set{})
		for answer := 1; answer <= 4; answer++ {
			c := fmt.Sprint("answer ", answer)
			k := s.keeper(t, p.Addr(), sabotage.Set{})
			if err := k.Do(t.Context(), job("warm "+c, 0), prov.replies("warm "+c)); err != nil {
				t.Fatal(err)
			}
			match := func(proxy.Frame) bool { return true }
			if s.protocol == proxy.Postgres {
				match = func(f proxy.Frame) bool { return f.Type == 'C' } // a statement is complete
			}
			hit := p.Arm(proxy.Fault{Frame: answer, Direction: proxy.ToClient, Match: match, Swallow: true})
			j := job(c, c)
			// pgx waits as long as ctx lets it; go-redis 200 ms, as the client here is set.
			patience := map[proxy.Protocol]time.Duration{proxy.Postgres: 500 * time.Millisecond, proxy.Redis: 20 * time.Second}[s.protocol]
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			err := k.Do(ctx, j, prov.replies(c))
			cancel()
			p.Disarm()
			if _, struck := <-hit; !struck {
				t.Errorf("%s: not struck", c)
			}
			p.CutAll()
			if s.protocol == proxy.Redis && (err != nil || prov.times(c) != 1) {
				t.Errorf("%s: %v, answered %d times", c, err, prov.times(c))
			}
			if err != nil {
				err = clean.Do(t.Context(), j, prov.replies(c))
			}
			if n := prov.times(c); n > 1 || n == 0 && err == nil {
				t.Errorf("%s: answered %d times, %v", c, n, err)
			}
			if n, st := prov.times(c), state(t, clean, c); n == 1 && st != runs.Committed && st != runs.Pending {
				t.Errorf("%s: answered and %q", c, st)
			}
		}
	})
}
