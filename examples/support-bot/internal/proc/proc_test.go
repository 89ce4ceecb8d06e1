package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	switch Role(os.Args) {
	case "":
		os.Exit(m.Run())
	case "faithful":
		if err := Serve(faithful); err != nil {
			os.Exit(1)
		}
	case "stubborn":
		_ = Serve(func(_ context.Context, _ string, emit func(Event)) error {
			emit(Event{Kind: Ready})
			select {}
		})
	case "broken":
		fmt.Fprintln(os.Stderr, "no luck today")
		os.Exit(3)
	}
	os.Exit(0)
}

func faithful(ctx context.Context, config string, emit func(Event)) error {
	emit(Event{Kind: Ready, Text: "at " + config})
	<-ctx.Done()
	emit(Event{Kind: Noted, Text: "good bye"})
	return nil
}

func startProcess(t *testing.T, role string, onEvent func(Event)) *Process {
	t.Helper()
	p, err := Start(role, 7, "home", onEvent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func limit(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestAChildEndsWhenItsParentLetsGo(t *testing.T) {
	var events []Event
	p := startProcess(t, "faithful", func(event Event) { events = append(events, event) })
	address, err := p.AwaitReady(limit(t))
	if err != nil || address != "at home" {
		t.Fatalf("ready: %q, %v", address, err)
	}
	p.Stop(time.Minute)
	if len(events) != 2 || events[1].Text != "good bye" || events[1].Worker != 7 || events[1].At.IsZero() {
		t.Errorf("events %+v", events)
	}
}

func TestAChildThatDoesNotEndIsKilled(t *testing.T) {
	p := startProcess(t, "stubborn", nil)
	if _, err := p.AwaitReady(limit(t)); err != nil {
		t.Fatal(err)
	}
	p.Stop(time.Millisecond)
	select {
	case <-p.Done():
	default:
		t.Error("it lives on")
	}
}

func TestAChildThatCannotStartIsReportedWithItsWords(t *testing.T) {
	p, err := Start("broken", 1, "home", nil)
	if err == nil {
		_, err = p.AwaitReady(limit(t))
	}
	if err == nil || !strings.Contains(err.Error(), "no luck today") {
		t.Errorf("error %v, want one with what it wrote", err)
	}
}

func TestWaitingForAChildEndsWithCtx(t *testing.T) {
	p := startProcess(t, "faithful", nil)
	if _, err := p.AwaitReady(limit(t)); err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	if _, err := p.AwaitReady(ctx); !errors.Is(err, enough) {
		t.Errorf("error %v", err)
	}
}
