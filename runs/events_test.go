package runs_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/runs"
)

// scenes has, for every kind of event, a scene in which it happens once.
var scenes = map[runs.EventKind]func(b *bench, p *process){
	"probed": func(b *bench, p *process) {
		d := newDesk()
		unknown(b, p, d.intent("refund", false), d.drop)
		time.Sleep(quietOver)
		p.deliver(job(1), func(ctx context.Context) error {
			_, err := d.intent("refund", false).Once(ctx, runs.ID("x"), d.drop)
			return err
		})
	},
	"begun":   func(b *bench, p *process) { p.deliver(job(1), idle); p.deliver(job(1), idle) },
	"resumed": func(b *bench, p *process) { p.deliver(job(1), failing); p.deliver(job(1), idle) },
	"reopened": func(b *bench, p *process) {
		p.deliverLast(job(1), failing)
		p.deliver(job(1), idle)
	},
	"new_generation": func(b *bench, p *process) {
		j := job(1)
		p.deliver(j, idle)
		j.Digest = "new work"
		p.deliver(j, idle)
	},
	"digest_changed": func(b *bench, p *process) {
		j := job(1)
		p.deliver(j, failing)
		j.Digest = "edited"
		p.deliver(j, idle)
	},
	"finished_again": func(b *bench, p *process) { p.deliver(job(1), idle); p.deliver(job(1), idle) },
	"tombstone_bound": func(b *bench, p *process) {
		j := job(1)
		j.Digest = "payload"
		cancel(b, p, j)
		p.deliver(j, idle)
		p.deliver(j, idle)
	},
	"refused": func(b *bench, p *process) {
		p.deliver(job(1), func(ctx context.Context) error {
			meanwhile(b, p)
			_ = once(ctx, tag("x"), nothing)
			return nil
		})
	},
	"claimed":  func(b *bench, p *process) { p.deliver(job(1), does("x", nil)) },
	"replayed": func(b *bench, p *process) { p.deliver(job(1), does("x", nil)); p.deliver(job(2), does("x", nil)) },
	"committed": func(b *bench, p *process) {
		p.deliver(job(1), does("x", nil))
		p.deliver(job(2), does("x", nil))
	},
	"failed":    func(b *bench, p *process) { p.deliver(job(1), does("x", runs.NotApplied(errNoAnswer))) },
	"ambiguous": func(b *bench, p *process) { p.deliver(job(1), does("x", errNoAnswer)) },
	"lapsed": func(b *bench, p *process) {
		claim(b, p)
		time.Sleep(time.Hour)
		p.deliver(job(2), idle)
		p.deliver(job(2), idle)
	},
	"late": func(b *bench, p *process) {
		c := claim(b, p)
		time.Sleep(time.Hour)
		commit(b, c)
		commit(b, c)
	},
	"duplicate": func(b *bench, p *process) {
		c := claim(b, p)
		time.Sleep(time.Hour)
		resolve(b, p, false)
		commit(b, c)
		commit(b, c)
	},
	"vanished": func(b *bench, p *process) {
		c := claim(b, p)
		forget(b, p)
		commit(b, c)
	},
	"caught_up": func(b *bench, p *process) {
		p.deliver(job(1), func(ctx context.Context) error {
			_, err := runs.FromContext(ctx).CatchUp(ctx)
			return err
		})
	},
	"dismissed": func(b *bench, p *process) {
		p.deliver(job(1, "m1"), func(ctx context.Context) error {
			_ = runs.FromContext(ctx).Dismiss(ctx, []string{"m1"}, "thanks")
			return runs.FromContext(ctx).Dismiss(ctx, []string{"m1"}, "thanks")
		})
	},
	"unanswered": func(b *bench, p *process) { p.deliver(job(1, "m1"), idle); p.deliver(job(2, "m1"), idle) },
	"reported": func(b *bench, p *process) {
		for range 2 { // a redelivered webhook is one report
			_, _ = p.Report(b.Context(), "c", runs.Write{ID: "w"})
		}
	},
	"echo": func(b *bench, p *process) {
		c := claim(b, p)
		for range 2 {
			_, _ = p.Report(b.Context(), "c", runs.Write{ID: "w", IdempotencyKey: c.Call().IdempotencyKey})
		}
	},
	"resolved": func(b *bench, p *process) {
		claim(b, p)
		time.Sleep(time.Hour)
		resolve(b, p, true)
		resolve(b, p, true)
	},
	"cancelled": func(b *bench, p *process) { cancel(b, p, job(1)); cancel(b, p, job(1)) },
	"released":  func(b *bench, p *process) { p.deliver(job(1), failing) },
	"parked": func(b *bench, p *process) {
		p.deliver(job(1), func(ctx context.Context) error {
			meanwhile(b, p)
			_ = once(ctx, tag("x"), nothing)
			return once(ctx, tag("x"), nothing)
		})
	},
	"ended": func(b *bench, p *process) { p.deliver(job(1), idle); p.deliver(job(1), idle) },
	"stale_end": func(b *bench, p *process) {
		p.deliver(job(1), func(context.Context) error {
			p.deliver(job(1), failing)
			return nil
		})
	},
	"inbound_dropped": func(b *bench, p *process) {
		p.deliver(job(1, "m1"), idle)
		time.Sleep(31 * 24 * time.Hour)
		purge(b, p)
	},
	"purged": func(b *bench, p *process) {
		p.deliver(job(1), does("x", nil))
		time.Sleep(31 * 24 * time.Hour)
		purge(b, p)
	},
	"stamped": func(b *bench, p *process) { _, _ = p.Stamp(b.Context(), "c") },
	"lease_lost": func(b *bench, p *process) {
		p.deliver(exclusive(job(1)), func(ctx context.Context) error {
			cancel(b, p, job(1))
			time.Sleep(time.Hour)
			return nil
		})
	},
	"come_back": func(b *bench, p *process) {
		p.deliver(exclusive(job(1)), func(context.Context) error { p.deliver(exclusive(job(2)), idle); return nil })
	},
	"not_recorded": func(b *bench, p *process) {
		p.deliver(job(1), func(ctx context.Context) error {
			return once(ctx, tag("x"), func(context.Context, *runs.Call) error { p.spy.breaks(errors.New("down")); return nil })
		})
	},
	"value_not_kept": func(b *bench, p *process) {
		in := runs.Intent[chan int]{Name: "n"}
		_, _ = in.OnceOn(b.Context(), p.Keeper, "c", runs.ID("x"), func(context.Context, *runs.Call) (chan int, error) { return make(chan int), nil })
	},
	"ledger_error": func(b *bench, p *process) {
		p.spy.breaks(errors.New("down"))
		_, _ = p.Stamp(b.Context(), "c")
	},
	"progress_saved": func(b *bench, p *process) {
		p.deliver(job(1), func(ctx context.Context) error { return runs.FromContext(ctx).SaveProgress(ctx, 1) })
	},
	"lease_rejoined": func(b *bench, p *process) {
		p.deliver(job(1), func(context.Context) error {
			p.spy.OnRenew(func(context.Context, []ledger.LeaseKey) error { return errors.New("partitioned") })
			time.Sleep(31 * time.Second)
			peer := job(2)
			peer.Order.Source = "another"
			p.deliver(peer, idle)
			p.spy.breaks(nil)
			time.Sleep(time.Minute)
			return nil
		})
	},
}

func failing(context.Context) error { return errors.New("later") }

// does returns a handler that does one effect, which ends with err.
func does(name string, err error) func(ctx context.Context) error {
	return func(ctx context.Context) error { return once(ctx, tag(name), (&provider{}).does(err)) }
}

// claim leaves an effect pending for half an hour.
func claim(b *bench, p *process) *runs.Claim {
	b.Helper()
	var c *runs.Claim
	p.deliver(job(1), func(ctx context.Context) (err error) {
		c, err = runs.FromContext(ctx).Claim(ctx, tag("x"), 30*time.Minute)
		return err
	})
	if c == nil {
		b.Fatal("not claimed")
	}
	return c
}

func commit(b *bench, c *runs.Claim) {
	b.Helper()
	if err := c.Commit(b.Context(), nil, ""); err != nil {
		b.Error(err)
	}
}

func resolve(b *bench, p *process, happened bool) {
	b.Helper()
	if _, _, err := p.Resolve(b.Context(), "c", p.effect("c").ID, runs.Resolution{Happened: happened, By: "me"}); err != nil {
		b.Error(err)
	}
}

func cancel(b *bench, p *process, j runs.Job) {
	b.Helper()
	if ok, err := p.Cancel(b.Context(), key(j), runs.CancelOptions{By: "me"}); !ok || err != nil {
		b.Error(ok, err)
	}
}

func purge(b *bench, p *process) {
	b.Helper()
	for range 10 {
		purged, err := p.Purge(b.Context(), 100)
		if err != nil {
			b.Fatal(err)
		}
		if !purged.More {
			return
		}
	}
	b.Error("there is always more to purge")
}

// kinds are the constants of type EventKind in package fence.
func kinds(t *testing.T) []runs.EventKind {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../fence/words.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []runs.EventKind
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if named, ok := spec.Type.(*ast.Ident); ok && named.Name == "EventKind" {
			word, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, runs.EventKind(word))
		}
		return true
	})
	return found
}

func TestEveryEventOfTheListIsEmittedOnceWhenItHappens(t *testing.T) {
	list := kinds(t)
	if len(list) < 30 {
		t.Fatalf("found only %d kinds", len(list))
	}
	for _, kind := range list {
		scene := scenes[kind]
		if scene == nil {
			t.Errorf("%s: there is no scene for it", kind)
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			onMemory(t, func(b *bench) {
				p := b.process()
				scene(b, p)
				p.spy.breaks(nil)
				told := p.told(kind)
				if len(told) != 1 {
					b.Fatalf("emitted %d times: %+v", len(told), told)
				}
				if e := told[0]; e.Conversation == "" && e.Run == (runs.RunKey{}) {
					b.Errorf("it says of nothing: %+v", e)
				}
			})
		})
	}
	for _, kind := range slices.Sorted(maps.Keys(scenes)) {
		if !slices.Contains(list, kind) {
			t.Errorf("%s is no event", kind)
		}
	}
}

func TestEventsNameWhatTheyAreAbout(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		j := job(1, "m1")
		p.deliver(j, func(ctx context.Context) error {
			e := reply("m1")
			e.Summary = "secret text"
			return once(ctx, e, nothing)
		})
		for _, kind := range []runs.EventKind{"claimed", "committed"} {
			e := p.told(kind)[0]
			if e.Conversation != "c" || e.Run != key(j) || e.Delivery != 1 || e.Effect.Intent != "reply" || e.Effect.Key != `"m1"` || e.Call != 1 {
				b.Errorf("%s: %+v", kind, e)
			}
		}
		for _, e := range p.events {
			if strings.Contains(e.Text, "secret") {
				b.Errorf("%s shows a summary: %+v", e.Kind, e)
			}
		}
	})
}
