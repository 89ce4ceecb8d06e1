package storm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"
)

// entry is a line of the provider's log: one thing that it did.
type entry struct {
	At           time.Time `json:"at"`
	Did          did       `json:"did"`
	Conversation string    `json:"conversation"`
	Message      string    `json:"message,omitempty"` // that came in
	Answers      []string  `json:"answers,omitempty"` // the messages that a reply answers
	Object       string    `json:"object,omitempty"`  // that was refunded
	// Key is the idempotency key that the call carried. It is written down and does nothing:
	// this provider does whatever reaches it.
	Key string `json:"key,omitempty"`
}

type did string

const (
	received did = "received"
	replied  did = "replied"
	refunded did = "refunded"
)

// providerPart is what a provider process is told.
type providerPart struct {
	Log  string `json:"log"`
	Seed uint64 `json:"seed"`
}

// provider is the outside world: it takes in messages, replies and refunds. It deduplicates
// nothing and misbehaves the way providers do.
type provider struct {
	mu   sync.Mutex
	log  *os.File
	seen map[string][]entry // by conversation, without refunds, which nobody can list
	rng  *rand.Rand
}

func (p *providerPart) serve(ctx context.Context, emit func(event)) error {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("storm: provider: %w", err)
	}
	defer log.Close()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("storm: provider: %w", err)
	}
	s := &provider{log: log, seen: map[string][]entry{}, rng: rand.New(rand.NewPCG(p.Seed, 1))}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", s.show)
	mux.HandleFunc("POST /", s.act)
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	go func() { stopped <- web.Serve(listener) }()
	emit(event{Kind: ready, Address: "http://" + listener.Addr().String() + "/"})
	select {
	case err := <-stopped:
		return fmt.Errorf("storm: provider: %w", err)
	case <-ctx.Done():
	}
	// What is under way is still done: the log is read after this.
	last, cancel := context.WithTimeout(context.Background(), stopLimit/2)
	defer cancel()
	return web.Shutdown(last)
}

// show returns what the provider shows of a conversation.
func (s *provider) show(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	seen := s.seen[r.URL.Query().Get("conversation")]
	s.mu.Unlock()
	_ = json.NewEncoder(w).Encode(seen)
}

// act does what is asked, or not, and answers, or not. It does not watch whether its client is
// still there: what reached it is done, even if the worker that asked is dead.
func (s *provider) act(w http.ResponseWriter, r *http.Request) {
	var e entry
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&e); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var before, after time.Duration
	refuse, drop, vanish := false, false, false
	if e.Did != received { // a customer's message is there once it was sent
		s.mu.Lock()
		before = swiftly.in(s.rng)
		switch n := s.rng.IntN(100); {
		case n < 4:
			refuse = true
		case n < 8:
			drop = true
		case n < 10:
			before = lateness.in(s.rng)
		case n < 12:
			after = lateness.in(s.rng)
		case n < 14:
			vanish = true
		}
		s.mu.Unlock()
	}
	time.Sleep(before)
	if vanish {
		panic(http.ErrAbortHandler) // the client cannot tell this from drop
	}
	if refuse {
		http.Error(w, "overloaded, nothing was done", http.StatusServiceUnavailable)
		return
	}
	if err := s.write(e); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	time.Sleep(after)
	if drop {
		panic(http.ErrAbortHandler)
	}
}

func (s *provider) write(e entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.At = time.Now()
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := s.log.Write(append(line, '\n')); err != nil {
		return err
	}
	if e.Did != refunded {
		s.seen[e.Conversation] = append(s.seen[e.Conversation], e)
	}
	return nil
}

// client calls a provider.
type client struct {
	base string
	http *http.Client
}

func newClient(base string, timeout time.Duration) *client {
	// The idempotency key is not sent as a header of that name: net/http would then send again
	// by itself what got no answer.
	return &client{base, &http.Client{Timeout: timeout, Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}
}

// notDoneError is an answer which says that nothing was done.
type notDoneError struct{ text string }

func (e *notDoneError) Error() string { return "provider: " + e.text }

// NotApplied says so in the library's words.
func (e *notDoneError) NotApplied() bool { return true }

func (c *client) do(ctx context.Context, e entry) error {
	body, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("provider: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("provider: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("provider: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	switch {
	case err != nil:
		return fmt.Errorf("provider: %w", err)
	case response.StatusCode == http.StatusServiceUnavailable:
		return &notDoneError{string(bytes.TrimSpace(text))}
	case response.StatusCode != http.StatusOK:
		return errors.New("provider: " + string(bytes.TrimSpace(text)))
	}
	return nil
}

// conversation returns the messages and replies of a conversation.
func (c *client) conversation(ctx context.Context, id string) ([]entry, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"?conversation="+url.QueryEscape(id), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("provider: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("provider: %w", err)
	}
	defer response.Body.Close()
	var seen []entry
	if err := json.NewDecoder(response.Body).Decode(&seen); err != nil {
		return nil, fmt.Errorf("provider: %w", err)
	}
	return seen, nil
}

// readLog reads a provider's log.
func readLog(path string) ([]entry, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("storm: provider's log: %w", err)
	}
	defer file.Close()
	var entries []entry
	for lines := json.NewDecoder(file); ; {
		var e entry
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			return entries, nil
		} else if err != nil {
			return nil, fmt.Errorf("storm: provider's log: %w", err)
		}
		entries = append(entries, e)
	}
}
