package runs_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

// unencodable are results that cannot be kept (rule S7.5).
var unencodable = map[string]any{
	"too large": strings.Repeat("x", 64<<10),
	"a channel": make(chan int),
	"a panic":   panicky{},
	"an error":  json.RawMessage("{"),
	"no text":   "\xff", // mended, it would not come back as it went
}

type panicky struct{}

func (panicky) MarshalJSON() ([]byte, error) { panic("not today") }

func TestAResultThatCannotBeKeptNeverRunsAgain(t *testing.T) {
	for name, value := range unencodable {
		t.Run(name, func(t *testing.T) {
			onMemory(t, func(b *bench) {
				p := b.process()
				in := runs.Intent[any]{Name: "look"}
				prov := &provider{}
				fn := func(ctx context.Context, call *runs.Call) (any, error) { return value, prov.do(ctx, call) }
				v := p.deliver(job(1), func(ctx context.Context) error {
					got, err := in.Once(ctx, runs.ID("x"), fn)
					if err != nil || !reflect.DeepEqual(got, value) {
						b.Errorf("now: got %v, %v", got, err)
					}
					_, err = in.Once(ctx, runs.ID("x"), fn)
					if !errors.Is(err, runs.ErrValueNotKept) {
						b.Errorf("replay: got %v", err)
					}
					// Without a value to give, the effect is done.
					if err := once(ctx, runs.Effect{Intent: "look", Key: runs.ID("x")}, prov.do); err != nil {
						b.Errorf("untyped: got %v", err)
					}
					return err
				})
				// A job that needs the value is stopped where a person sees it.
				wantVerdict(b, v, runs.ActionDiscard, "value_not_kept")
				if prov.count() != 1 || p.effect("c").State() != "committed" || len(p.told("value_not_kept")) != 1 {
					b.Errorf("called %d times, is %s", prov.count(), p.effect("c").State())
				}
			})
		})
	}
}

func TestAResultAtTheLimitIsKeptByteExact(t *testing.T) {
	onEach(t, func(b *bench) {
		p := b.process()
		in := runs.Intent[string]{Name: "look"}
		want := strings.Repeat("é\x00<", (64<<10)/14)
		_ = p.deliver(job(1), func(ctx context.Context) error {
			for range 2 {
				got, err := in.Once(ctx, runs.ID("x"), func(context.Context, *runs.Call) (string, error) { return want, nil })
				if err != nil || got != want {
					b.Errorf("got %d bytes, %v", len(got), err)
				}
			}
			return nil
		})
	})
}

func TestAValueComesBackAsItWent(t *testing.T) {
	onEach(t, func(b *bench) {
		type all struct {
			Took  time.Duration
			At    time.Time
			Nil   []string
			Empty []string
			None  map[string]int
			Bytes []byte
			Float float64
			Big   int64
			Text  string
			Any   any
		}
		want := all{
			Took: time.Hour, At: time.Date(2026, 3, 1, 2, 3, 4, 5, time.UTC), Empty: []string{}, Bytes: []byte{0, 255},
			Float: 0.1, Big: 1<<63 - 1, Text: "<é\x00\u2028>", Any: map[string]any{"a": []any{1.5, nil, true}},
		}
		p := b.process()
		in := runs.Intent[all]{Name: "look"}
		for range 2 {
			got, err := in.OnceOn(b.Context(), p.Keeper, "c", runs.ID("x"), func(context.Context, *runs.Call) (all, error) { return want, nil })
			if err != nil || !reflect.DeepEqual(got, want) {
				b.Errorf("got %+v, %v", got, err)
			}
		}
	})
}

func TestAStoredValueOfAnotherShapeIsAnErrorAndNoCall(t *testing.T) {
	onMemory(t, func(b *bench) {
		p := b.process()
		_ = p.deliver(job(1), func(ctx context.Context) error {
			_, _ = runs.Intent[string]{Name: "n"}.Once(ctx, runs.ID("x"), func(context.Context, *runs.Call) (string, error) { return "s", nil })
			_, err := runs.Intent[int]{Name: "n"}.Once(ctx, runs.ID("x"), func(context.Context, *runs.Call) (int, error) {
				b.Error("called")
				return 0, nil
			})
			wantNamed(b, err, "decode the stored result")
			return nil
		})
	})
}
