package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/chaos"
	"github.com/fencedrun/fencedrun/runs"
)

// recorder is a testing.TB that remembers what it was told.
type recorder struct {
	testing.TB
	failure, log string
}

func (r *recorder) Helper()                           {}
func (r *recorder) Fatalf(format string, args ...any) { r.failure = fmt.Sprintf(format, args...) }
func (r *recorder) Logf(format string, args ...any)   { r.log = fmt.Sprintf(format, args...) }

func try(t *testing.T, config *chaos.Config, handler chaos.Handler) *recorder {
	t.Helper()
	r := &recorder{TB: t}
	chaos.Everywhere(r, handler, config)
	return r
}

// reply makes one effect that answers a message.
func reply(ctx context.Context, key runs.EffectKey, answers []string, fn func(ctx context.Context, call *runs.Call) error) error {
	return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: key, Answers: answers}, fn)
}

func TestEverywhereFindsWhatIsDoneTwiceAndSaysHow(t *testing.T) {
	for name, c := range map[string]struct {
		handler chaos.Handler
		says    []string
	}{
		"outside of any effect": {
			func(ctx context.Context, m string, p *chaos.Provider) error { return p.Do(ctx, "answer to "+m) },
			[]string{"answer to m0 happened 2 times", "SENDS answer to m0   ◀ WRONG", "outside of any effect"},
		},
		"before the effect": {
			func(ctx context.Context, m string, p *chaos.Provider) error {
				if err := p.Do(ctx, "refund for "+m); err != nil {
					return err
				}
				return reply(ctx, runs.ID(m), []string{m}, func(ctx context.Context, _ *runs.Call) error { return p.Do(ctx, "answer to "+m) })
			},
			[]string{"refund for m0 happened 2 times", "outside of any effect"},
		},
		"keyed by the job": {
			func(ctx context.Context, m string, p *chaos.Provider) error {
				return reply(ctx, runs.ID(runs.FromContext(ctx).Job().ID), nil, func(ctx context.Context, _ *runs.Call) error { return p.Do(ctx, "answer to "+m) })
			},
			[]string{"the webhook of m0 comes again, which makes job j1", "their keys differ"},
		},
		"keyed by the delivery, looking again": {
			func(ctx context.Context, m string, p *chaos.Provider) error {
				return runs.UntilCurrent(ctx, func(ctx context.Context, _ runs.View) error {
					key := runs.Key("message", m, "draft", int(runs.FromContext(ctx).Delivery()))
					return reply(ctx, key, nil, func(ctx context.Context, _ *runs.Call) error { return p.Do(ctx, "answer to "+m) })
				})
			},
			[]string{"delivers j0 to w2, delivery 2", "their keys differ"},
		},
		"every error taken as no": {
			func(ctx context.Context, m string, p *chaos.Provider) error {
				return reply(ctx, runs.ID(m), []string{m}, func(ctx context.Context, _ *runs.Call) error {
					if err := p.Do(ctx, "answer to "+m); err != nil {
						return runs.NotApplied(err)
					}
					return nil
				})
			},
			[]string{"⚡ times out; the provider did it, which the worker cannot know", "Return runs.NotApplied only"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := try(t, nil, c.handler)
			for _, want := range c.says {
				if !strings.Contains(r.failure, want) {
					t.Errorf("%q is missing in\n%s", want, r.failure)
				}
			}
			if n := strings.Count(r.failure, "\n"); n > 24 {
				t.Errorf("%d lines are no short story:\n%s", n, r.failure)
			}
			if again := try(t, nil, c.handler); again.failure != r.failure {
				t.Errorf("another story the second time:\n%s", again.failure)
			}
		})
	}
}

func TestEverywherePassesHandlersThatUseTheLibrary(t *testing.T) {
	config := &chaos.Config{Worlds: 600}
	for name, handler := range map[string]chaos.Handler{
		"its own message": func(ctx context.Context, m string, p *chaos.Provider) error {
			return reply(ctx, runs.ID(m), []string{m}, func(ctx context.Context, _ *runs.Call) error { return p.Do(ctx, "answer to "+m) })
		},
		"a provider that honours keys": func(ctx context.Context, m string, p *chaos.Provider) error {
			return p.DoOnce(ctx, m, "answer to "+m)
		},
		"reads what is unanswered": func(ctx context.Context, _ string, p *chaos.Provider) error {
			for _, m := range p.Messages() {
				if p.Happened("answer to " + m) {
					continue
				}
				if err := reply(ctx, runs.ID(m), []string{m}, func(ctx context.Context, _ *runs.Call) error { return p.Do(ctx, "answer to "+m) }); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range []runs.Mode{runs.Supersede, runs.Exclusive} {
				config.Mode = mode
				if r := try(t, config, handler); r.failure != "" || !strings.Contains(r.log, "nothing was done twice") {
					t.Errorf("mode %s: %s%s", mode, r.log, r.failure)
				}
			}
		})
	}
}

func TestEverywhereSaysWhenNothingIsTested(t *testing.T) {
	idle := func(context.Context, string, *chaos.Provider) error { return nil }
	if r := try(t, nil, idle); !strings.Contains(r.failure, "has done nothing") {
		t.Errorf("a handler that does nothing: %q", r.failure)
	}
	broken := func(context.Context, string, *chaos.Provider) error { return errors.New("no template") }
	if r := try(t, nil, broken); !strings.Contains(r.failure, "fails although nothing goes wrong: no template") {
		t.Errorf("a handler that fails: %q", r.failure)
	}
	panics := func(context.Context, string, *chaos.Provider) error { panic("no template") }
	if r := try(t, nil, panics); !strings.Contains(r.failure, "panic: no template") {
		t.Errorf("a handler that panics: %q", r.failure)
	}
}

func TestEverywhereRefusesAConfigThatCannotBeMeant(t *testing.T) {
	for field, c := range map[string]chaos.Config{"Messages": {Messages: 5}, "Depth": {Depth: -1}, "Mode": {Mode: "both"}, "Worlds": {Worlds: -1}} {
		r := try(t, &c, func(context.Context, string, *chaos.Provider) error { return nil })
		if !strings.Contains(r.failure, "Config."+field+" is ") || !strings.Contains(r.failure, "can be") {
			t.Errorf("%s: %q", field, r.failure)
		}
	}
}

// Who stops early is told what was played, and every single deviation comes before any two.
func TestEverywhereSaysHowFarItCame(t *testing.T) {
	careful := func(ctx context.Context, m string, p *chaos.Provider) error {
		return reply(ctx, runs.ID(m), []string{m}, func(ctx context.Context, _ *runs.Call) error { return p.Do(ctx, "answer to "+m) })
	}
	for worlds, want := range map[int]string{
		10:  "not even every single thing was tried",
		400: "tried: every single thing with 1 message, every single thing with 2 messages",
	} {
		if r := try(t, &chaos.Config{Worlds: worlds}, careful); !strings.HasSuffix(r.log, want) {
			t.Errorf("%d worlds: %q%s", worlds, r.log, r.failure)
		}
	}
	if r := try(t, &chaos.Config{Depth: 1}, careful); !strings.Contains(r.log, "all in which up to 1 things") || !strings.HasSuffix(r.log, "every single thing with 2 messages") {
		t.Errorf("one thing wrong: %q%s", r.log, r.failure)
	}
}
