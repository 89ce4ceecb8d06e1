package runs_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

// desk is a provider that can be asked what it did.
type desk struct {
	mu      sync.Mutex
	done    map[string]string // reference by idempotency key
	calls   int
	asked   []runs.Question
	inside  int // probes at this moment
	crowd   int // the most there were
	answers func(q runs.Question) (runs.Found[string], error)
	takes   time.Duration
}

func newDesk() *desk { return &desk{done: map[string]string{}} }

// send does it, and loses the answer.
func (d *desk) send(err error) func(context.Context, *runs.Call) (string, error) {
	return func(_ context.Context, call *runs.Call) (string, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.calls++
		d.done[call.IdempotencyKey] = "R" + call.Effect.Intent
		return "sent", err
	}
}

// drop loses the request, and nobody can tell.
func (d *desk) drop(context.Context, *runs.Call) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	return "", errNoAnswer
}

func (d *desk) probe(_ context.Context, q runs.Question) (runs.Found[string], error) {
	d.mu.Lock()
	d.asked = append(d.asked, q)
	d.inside++
	d.crowd = max(d.crowd, d.inside)
	ref, found := d.done[q.IdempotencyKey]
	d.mu.Unlock()
	time.Sleep(d.takes)
	d.mu.Lock()
	d.inside--
	d.mu.Unlock()
	switch {
	case d.answers != nil:
		return d.answers(q)
	case found:
		return runs.Applied("found", ref), nil
	}
	return runs.NotFound[string](), nil
}

func (d *desk) counts() (calls, asked int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls, len(d.asked)
}

func (d *desk) intent(name string, shows bool) runs.Intent[string] {
	return runs.Intent[string]{Name: name, Probe: d.probe, ReadYourWrites: shows}
}

// unknown leaves an effect of in unknown, in a delivery of job 1.
func unknown(b *bench, p *process, in runs.Intent[string], send func(context.Context, *runs.Call) (string, error)) {
	b.Helper()
	v := p.deliver(job(1), func(ctx context.Context) error {
		_, err := in.Once(ctx, runs.ID("x"), send)
		return err
	})
	if v.Action != runs.ActionComeBack {
		b.Fatalf("got %+v", v)
	}
}

const quietOver = 4*time.Minute + 10*time.Second // claim deadline 2 min, quiet period 2 min

func TestAClaimerProbesAnUnknownOutcomeAndReplaysWhatIsFound(t *testing.T) {
	onEach(t, func(b *bench) {
		d := newDesk()
		in := d.intent("refund", false)
		unknown(b, b.process(), in, d.send(errNoAnswer))
		again := func(p *process) (got string, v runs.Verdict) {
			v = p.deliver(job(1), func(ctx context.Context) (err error) {
				got, err = in.Once(ctx, runs.ID("x"), d.send(nil), runs.With{Summary: "s", Params: 7})
				return err
			})
			return got, v
		}
		p := b.process()
		if _, v := again(p); v.Action != runs.ActionComeBack {
			b.Errorf("before the quiet period is over: %+v", v)
		}
		if _, asked := d.counts(); asked != 0 {
			b.Error("asked before the quiet period was over")
		}
		time.Sleep(quietOver)
		got, v := again(p)
		wantVerdict(b, v, runs.ActionDone, "")
		if calls, asked := d.counts(); got != "found" || calls != 1 || asked != 1 {
			b.Errorf("got %q after %d calls and %d probes", got, calls, asked)
		}
		q, e := d.asked[0], p.effect("c")
		if q.Conversation != "c" || q.Effect.Intent != "refund" || q.Effect.Key != `"x"` || q.IdempotencyKey == "" || q.Try != 1 || len(q.Calls) != 1 || q.Since().IsZero() {
			b.Errorf("the question: %+v", q)
		}
		if c := e.Deciding(); c.Reference != "Rrefund" || !strings.HasPrefix(c.ResolvedBy, "probe by ") || e.Probing.Tries != 0 {
			b.Errorf("the record: %+v", e)
		}
		if len(p.told(runs.EventResolved)) != 1 || len(p.told(runs.EventCommitted)) != 1 {
			b.Errorf("events: %+v", p.events)
		}
	})
}

func TestNotFoundIsNoAnswerUnlessTheProviderShowsItsWritesAtOnce(t *testing.T) {
	onEach(t, func(b *bench) {
		for _, shows := range []bool{true, false} {
			d := newDesk()
			in := d.intent("refund", shows)
			j := job(1)
			j.Conversation = map[bool]string{true: "at once", false: "late"}[shows]
			p := b.process()
			deliver := func(send func(context.Context, *runs.Call) (string, error)) runs.Verdict {
				return p.deliver(j, func(ctx context.Context) error {
					_, err := in.Once(ctx, runs.ID("x"), send)
					return err
				})
			}
			j.ID += j.Conversation
			deliver(d.drop)
			time.Sleep(quietOver)
			v := deliver(d.send(nil))
			calls, asked := d.counts()
			if shows {
				if v.Action != runs.ActionDone || calls != 2 || asked != 1 {
					b.Errorf("it did not happen, and was not called again: %+v, %d calls, %d probes", v, calls, asked)
				}
				continue
			}
			// Its job comes back for the next probes, and is parked when the fourth found nothing.
			for round := 1; v.Action == runs.ActionComeBack && round < 10; round++ {
				if want := 2 * time.Minute << (round - 1); v.After < want || v.After > want+want/10 {
					b.Errorf("comes back after %v, want %v", v.After, want)
				}
				time.Sleep(v.After)
				v = deliver(d.send(nil))
			}
			if calls, asked = d.counts(); v.Action != runs.ActionPark || calls != 1 || asked != 4 {
				b.Errorf("not found was taken for not applied: %+v, %d calls, %d probes", v, calls, asked)
			}
		}
	})
}

func TestAProbeThatCannotSayLeavesTheOutcomeUnknownAndIsNotRepeatedAtOnce(t *testing.T) {
	for name, answers := range map[string]func(runs.Question) (runs.Found[string], error){
		"an error":   func(runs.Question) (runs.Found[string], error) { return runs.Applied("x", ""), errors.New("503") },
		"nothing":    func(runs.Question) (runs.Found[string], error) { return runs.Found[string]{}, nil },
		"a bad word": func(runs.Question) (runs.Found[string], error) { return runs.Found[string]{What: "yes"}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			onMemory(t, func(b *bench) {
				d := newDesk()
				d.answers = answers
				in := d.intent("refund", true)
				p := b.processWith(runs.Config{Intents: []runs.Declared{in}}, nil)
				unknown(b, p, in, d.drop)
				sweep := func(want runs.Swept) {
					b.Helper()
					if got, err := p.Sweep(b.Context()); got != want || err != nil {
						b.Errorf("swept %+v, %v; want %+v", got, err, want)
					}
				}
				sweep(runs.Swept{NotYet: 1})
				time.Sleep(quietOver)
				sweep(runs.Swept{Asked: 1, Unknown: 1})
				sweep(runs.Swept{NotYet: 1})
				e := p.effect("c")
				if e.State() != runs.Ambiguous || e.Probing.Tries != 1 || e.Probing.Note == "" {
					b.Errorf("the record: %+v", e.Probing)
				}
				if len(p.told(runs.EventProbed)) != 1 {
					b.Errorf("events: %+v", p.events)
				}
				// The pauses double.
				time.Sleep(2*time.Minute + time.Second)
				sweep(runs.Swept{Asked: 1, Unknown: 1})
				time.Sleep(2*time.Minute + time.Second)
				sweep(runs.Swept{NotYet: 1})
				time.Sleep(2 * time.Minute)
				sweep(runs.Swept{Asked: 1, Unknown: 1})
				if d.asked[2].Try != 3 {
					b.Errorf("try %d", d.asked[2].Try)
				}
			})
		})
	}
}

func TestASweepSettlesWhatIsDueAndLeavesTheRestToPeople(t *testing.T) {
	onEach(t, func(b *bench) {
		d := newDesk()
		in := d.intent("refund", true)
		p := b.processWith(runs.Config{Intents: []runs.Declared{in, runs.Intent[int]{Name: "other"}}}, nil)
		ctx := b.Context()
		for i, send := range []func(context.Context, *runs.Call) (string, error){d.send(errNoAnswer), d.drop} {
			_, err := in.OnceOn(ctx, p.Keeper, "c", runs.Key("n", i), send, runs.With{AfterUnresolved: true})
			if err == nil {
				b.Fatal("no error")
			}
		}
		if err := p.Once(ctx, "c", tag("x"), (&provider{}).does(errNoAnswer)); err == nil {
			b.Fatal("no error")
		}
		time.Sleep(quietOver)
		want := runs.Swept{Asked: 2, Applied: 1, NotApplied: 1, NoProbe: 1}
		if got, err := p.Sweep(ctx); got != want || err != nil {
			b.Errorf("swept %+v, %v", got, err)
		}
		if got, err := p.Sweep(ctx); got != (runs.Swept{NoProbe: 1}) || err != nil {
			b.Errorf("swept again %+v, %v", got, err)
		}
		value, err := in.OnceOn(ctx, p.Keeper, "c", runs.Key("n", 0), d.drop)
		if value != "found" || err != nil {
			b.Errorf("replayed %q, %v", value, err)
		}
	})
}

func TestAnUnknownOfAnotherRunIsProbedForWhoeverItHoldsUp(t *testing.T) {
	onEach(t, func(b *bench) {
		d := newDesk()
		in := runs.Intent[string]{Name: "reply", Probe: d.probe}
		p := b.processWith(runs.Config{Intents: []runs.Declared{in}}, nil)
		// Job 1 leaves the answer to m1 unknown, ends, and nobody runs it again.
		v := p.deliverLast(job(1, "m1"), func(ctx context.Context) error {
			return once(ctx, reply("m1"), func(ctx context.Context, call *runs.Call) error {
				_, err := d.send(errNoAnswer)(ctx, call)
				return err
			})
		})
		if v.Action != runs.ActionComeBack {
			b.Fatalf("got %+v", v)
		}
		time.Sleep(quietOver)
		// Job 2 brings the same message. What it must know is asked, and nothing is left to do.
		v = p.deliver(job(2, "m1"), func(ctx context.Context) error {
			return once(ctx, runs.Effect{Intent: "reply", Key: runs.ID("other"), Answers: []string{"m1"}}, (&provider{}).do)
		})
		wantVerdict(b, v, runs.ActionDone, "")
		if calls, asked := d.counts(); calls != 1 || asked != 1 {
			b.Errorf("%d calls, %d probes", calls, asked)
		}
	})
}

func TestAJobThatIsNotEnteredAgainIsProbedBeforeItEnds(t *testing.T) {
	onMemory(t, func(b *bench) {
		d := newDesk()
		in := d.intent("refund", false)
		p := b.processWith(runs.Config{Intents: []runs.Declared{in}}, nil)
		unknown(b, p, in, d.send(errNoAnswer))
		time.Sleep(quietOver)
		d.takes = 50 * time.Second // longer than what is recorded may take
		v := p.Deliver(b.Context(), job(1), runs.Delivery{ReplayOnly: true}, func(context.Context) error {
			b.Error("entered")
			return nil
		})
		wantVerdict(b, v, runs.ActionDone, "replay_only")
	})
}

func TestOneProberAtATimeAndNoCallBeforeAVerdict(t *testing.T) {
	onEach(t, func(b *bench) {
		d := newDesk()
		in := d.intent("refund", true)
		config := runs.Config{Intents: []runs.Declared{in}}
		unknown(b, b.processWith(config, nil), in, d.send(errNoAnswer))
		time.Sleep(quietOver)
		d.takes = 5 * time.Second
		var all sync.WaitGroup
		for range 2 {
			p := b.processWith(config, nil)
			all.Go(func() {
				if _, err := p.Sweep(b.Context()); err != nil {
					b.Error(err)
				}
			})
		}
		for i := range 3 {
			p := b.processWith(config, nil)
			all.Go(func() {
				for range 20 {
					_, err := in.OnceOn(b.Context(), p.Keeper, "c", runs.ID("x"), d.send(nil))
					if err == nil {
						return
					}
					if !errors.Is(err, runs.ErrAmbiguous) {
						b.Errorf("claimer %d: %v", i, err)
					}
					time.Sleep(time.Second)
				}
				b.Errorf("claimer %d never got its answer", i)
			})
		}
		all.Wait()
		if calls, asked := d.counts(); calls != 1 || asked != 1 || d.crowd != 1 {
			b.Errorf("%d calls, %d probes, %d at a time", calls, asked, d.crowd)
		}
	})
}

func TestAJobComesBackWhileSomebodyElseIsAsking(t *testing.T) {
	onMemory(t, func(b *bench) {
		d := newDesk()
		in := d.intent("refund", false)
		config := runs.Config{Intents: []runs.Declared{in}}
		p := b.processWith(config, nil)
		unknown(b, p, in, d.send(errNoAnswer))
		time.Sleep(quietOver)
		d.takes = 5 * time.Second
		var all sync.WaitGroup
		all.Go(func() { _, _ = b.processWith(config, nil).Sweep(b.Context()) })
		time.Sleep(time.Second)
		v := p.deliver(job(1), func(ctx context.Context) error {
			_, err := in.Once(ctx, runs.ID("x"), d.send(nil))
			return err
		})
		if v.Action != runs.ActionComeBack || v.After <= 0 {
			b.Errorf("got %+v", v)
		}
		all.Wait()
	})
}

func TestARefusalThatTheProviderShowsIsBelievedFromAnyProvider(t *testing.T) {
	onMemory(t, func(b *bench) {
		d := newDesk()
		d.answers = func(q runs.Question) (runs.Found[string], error) {
			var cents int
			if err := q.DecodeParams(&cents); err != nil || cents != 392 {
				b.Errorf("params %d, %v", cents, err)
			}
			return runs.Rejected[string](), nil
		}
		in := d.intent("refund", false)
		p := b.process()
		var calls int
		for range 2 {
			p.deliver(job(1), func(ctx context.Context) error {
				_, err := in.Once(ctx, runs.ID("x"), func(context.Context, *runs.Call) (string, error) {
					calls++
					return "", map[bool]error{true: errNoAnswer}[calls == 1]
				}, runs.With{Params: 392})
				return err
			})
			time.Sleep(quietOver)
		}
		if e := p.effect("c"); e.State() != runs.Committed || calls != 2 {
			b.Errorf("%s after %d calls", e.State(), calls)
		}
		if err := (runs.Question{}).DecodeParams(&calls); err == nil {
			b.Error("params that were not given are decoded")
		}
	})
}

func TestAProbeThatPanicsIsNoAnswerAndThePanicPasses(t *testing.T) {
	onMemory(t, func(b *bench) {
		d := newDesk()
		d.answers = func(runs.Question) (runs.Found[string], error) { panic("boom") }
		in := d.intent("refund", true)
		p := b.processWith(runs.Config{Intents: []runs.Declared{in}}, nil)
		unknown(b, p, in, d.drop)
		time.Sleep(quietOver)
		func() {
			defer func() {
				if r := recover(); r != "boom" {
					b.Errorf("recovered %v", r)
				}
			}()
			_, _ = p.Sweep(b.Context())
		}()
		if e := p.effect("c"); e.State() != runs.Ambiguous || e.Probing.Nonce != "" || e.Probing.Next == 0 {
			b.Errorf("the record: %+v", e.Probing)
		}
	})
}

func TestAnAnswerThatComesTooLateIsNotTaken(t *testing.T) {
	onMemory(t, func(b *bench) {
		slow, quick := newDesk(), newDesk()
		slow.takes = 2 * time.Minute // it ignores its ctx
		in := slow.intent("refund", true)
		p := b.processWith(runs.Config{Intents: []runs.Declared{in}}, nil)
		other := b.processWith(runs.Config{Intents: []runs.Declared{quick.intent("refund", true)}}, nil)
		quick.answers = func(runs.Question) (runs.Found[string], error) { return runs.Found[string]{}, nil }
		unknown(b, p, in, slow.drop)
		time.Sleep(quietOver)
		var all sync.WaitGroup
		all.Go(func() { _, _ = p.Sweep(b.Context()) })
		time.Sleep(90 * time.Second)
		if got, err := other.Sweep(b.Context()); got != (runs.Swept{Asked: 1, Unknown: 1}) || err != nil {
			b.Errorf("another asks when the first has taken too long: %+v, %v", got, err)
		}
		all.Wait()
		if e := p.effect("c"); e.State() != runs.Ambiguous {
			b.Errorf("the answer of a question that another had taken over was believed: %s", e.State())
		}
	})
}

func TestAValueThatAProbeFindsIsKeptLikeAnyOther(t *testing.T) {
	onMemory(t, func(b *bench) {
		d := newDesk()
		d.answers = func(runs.Question) (runs.Found[string], error) {
			return runs.Applied(strings.Repeat("x", 100), "R"), nil
		}
		in := d.intent("refund", false)
		p := b.processWith(runs.Config{MaxResult: 50}, nil)
		unknown(b, p, in, d.send(errNoAnswer))
		time.Sleep(quietOver)
		v := p.deliver(job(1), func(ctx context.Context) error {
			_, err := in.Once(ctx, runs.ID("x"), d.send(nil))
			if !errors.Is(err, runs.ErrValueNotKept) {
				b.Errorf("got %v", err)
			}
			return nil
		})
		wantVerdict(b, v, runs.ActionDone, "")
	})
}

func TestWhatIsDeclaredIsTrueOfTheUntypedForm(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.processWith(runs.Config{Intents: []runs.Declared{runs.Intent[int]{Name: "mail", Answering: true, Distinct: true}}}, nil)
		v := p.deliver(job(1, "m1"), func(ctx context.Context) error {
			return once(ctx, runs.Effect{Intent: "mail", Key: runs.ID("k"), Answers: []string{"m1"}}, (&provider{}).do)
		})
		wantVerdict(b, v, runs.ActionDone, "")
		if e := p.effect("c"); !e.Distinct {
			b.Errorf("not distinct: %+v", e)
		}
	})
}

func TestIntentsThatCannotBeDeclared(t *testing.T) {
	for want, intents := range map[string][]runs.Declared{
		"Config.Intents[0] is nil":                               {nil},
		`Config.Intents declares "a" twice`:                      {runs.Intent[int]{Name: "a"}, runs.Intent[string]{Name: "a"}},
		"Config.Intents[0]: ":                                    {runs.Intent[int]{}},
		"Intent.ReadYourWrites is said of a Probe, and there is": {runs.Intent[int]{Name: "a", ReadYourWrites: true}},
		"ClaimDeadline (1m0s) must be longer than Timeout (2m0s": {runs.Intent[int]{Name: "a", Timeout: 2 * time.Minute, ClaimDeadline: time.Minute}},
	} {
		store, err := openers[0].open(t)()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := runs.New(store, &runs.Config{Intents: intents}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	onMemory(t, func(b *bench) {
		if _, err := b.process().Sweep(b.Context()); err == nil || !strings.Contains(err.Error(), "Config.Intents") {
			b.Errorf("a sweep without a probe: %v", err)
		}
	})
}
