// Package provider is the outside world of the example: a help desk with an HTTP interface, in a process of its own. It
// takes in customers' messages, sends replies and carries out actions. It does not deduplicate, and it misbehaves the way
// providers do. Its append-only log is the only judge of what happened.
package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// Config is what a provider process needs to know.
type Config struct {
	Log    string // path of the log file
	Faults Faults
}

// Message is a customer's message.
type Message struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// Reply is an answer to a customer.
type Reply struct {
	Text           string   `json:"text"`
	Answers        []string `json:"answers"`
	IdempotencyKey string   `json:"idempotency_key,omitempty"` // taken and ignored, as many providers do
}

// Action is anything else the help desk can do.
type Action struct {
	Kind           string `json:"kind"`
	Object         string `json:"object"`
	Text           string `json:"text"`
	IdempotencyKey string `json:"idempotency_key,omitempty"` // taken and ignored
}

// Conversation is what the help desk shows of a conversation: messages and replies. Actions are carried out elsewhere and
// cannot be listed.
type Conversation struct {
	Messages []Message `json:"messages"`
	Replies  []Reply   `json:"replies"`
}

// Arrived returns the ids of the messages that came in, in their order.
func (c Conversation) Arrived() []string {
	var ids []string
	for _, message := range c.Messages {
		ids = append(ids, message.ID)
	}
	return ids
}

// Open returns the ids of the messages that no reply shown answers.
func (c Conversation) Open() []string {
	answered := map[string]bool{}
	for _, reply := range c.Replies {
		for _, id := range reply.Answers {
			answered[id] = true
		}
	}
	var open []string
	for _, message := range c.Messages {
		if !answered[message.ID] {
			open = append(open, message.ID)
		}
	}
	return open
}

// problem is the body of an answer that is not 2xx.
type problem struct {
	Error   string `json:"error"`
	Applied bool   `json:"applied"`
}

type server struct {
	log  *log
	dice *dice
}

// Serve runs a provider on a loopback port until ctx is done; ready gets its base URL.
func Serve(ctx context.Context, config Config, ready func(base string)) error {
	log, err := openLog(config.Log)
	if err != nil {
		return err
	}
	defer log.file.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("provider: %w", err)
	}
	s := &server{log: log, dice: newDice(config.Faults)}
	web := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	go func() { stopped <- web.Serve(listener) }()
	ready("http://" + listener.Addr().String())
	select {
	case err := <-stopped:
		return fmt.Errorf("provider: %w", err)
	case <-ctx.Done():
	}
	// Whatever is under way is still done: the log is read after this.
	last, cancel := context.WithTimeout(context.Background(), 3*config.Faults.Deadline)
	defer cancel()
	if err := web.Shutdown(last); err != nil {
		_ = web.Close()
	}
	return nil
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /conversations/{id}", s.show)
	mux.HandleFunc("POST /conversations/{id}/messages", s.receive)
	mux.HandleFunc("POST /conversations/{id}/replies", s.reply)
	mux.HandleFunc("POST /conversations/{id}/actions", s.act)
	return mux
}

func (s *server) show(w http.ResponseWriter, r *http.Request) {
	var conversation Conversation
	for _, entry := range s.log.conversation(r.PathValue("id")) {
		switch entry.Did {
		case Received:
			conversation.Messages = append(conversation.Messages, Message{ID: entry.Message, Text: entry.Text})
		case Replied:
			conversation.Replies = append(conversation.Replies, Reply{Text: entry.Text, Answers: entry.Answers})
		}
	}
	respond(w, http.StatusOK, conversation)
}

// receive is not part of what misbehaves: a customer's message is there once it was sent.
func (s *server) receive(w http.ResponseWriter, r *http.Request) {
	var message Message
	if !decode(w, r, &message) {
		return
	}
	if message.ID == "" {
		respond(w, http.StatusBadRequest, problem{Error: "id: empty"})
		return
	}
	entry := Entry{Did: Received, Conversation: r.PathValue("id"), Message: message.ID, Text: message.Text}
	if err := s.log.append(entry); err != nil {
		respond(w, http.StatusInternalServerError, problem{Error: err.Error()})
		return
	}
	respond(w, http.StatusCreated, struct{}{})
}

func (s *server) reply(w http.ResponseWriter, r *http.Request) {
	var reply Reply
	if !decode(w, r, &reply) {
		return
	}
	if len(reply.Answers) == 0 {
		respond(w, http.StatusBadRequest, problem{Error: "answers: empty"})
		return
	}
	// The last message answered names the reply: which others it takes along depends on who came first.
	about := "reply " + reply.Answers[len(reply.Answers)-1]
	s.misbehave(w, about, Entry{Did: Replied, Conversation: r.PathValue("id"), Answers: reply.Answers, Text: reply.Text})
}

func (s *server) act(w http.ResponseWriter, r *http.Request) {
	var action Action
	if !decode(w, r, &action) {
		return
	}
	if action.Kind == "" || action.Object == "" {
		respond(w, http.StatusBadRequest, problem{Error: "kind or object: empty"})
		return
	}
	conversation := r.PathValue("id")
	about := strings.Join([]string{"action", conversation, action.Kind, action.Object}, " ")
	s.misbehave(w, about, Entry{Did: Acted, Conversation: conversation, Kind: action.Kind, Object: action.Object, Text: action.Text})
}

// misbehave does what entry says, or not, and answers, or not. It does not watch for the client going away: a request that
// reached the provider is carried out, even if the worker that sent it is dead by now.
func (s *server) misbehave(w http.ResponseWriter, about string, entry Entry) {
	what := s.dice.throw(about)
	time.Sleep(what.before)
	if what.end == refuse {
		respond(w, http.StatusServiceUnavailable, problem{Error: "overloaded, nothing was done"})
		return
	}
	if err := s.log.append(entry); err != nil {
		respond(w, http.StatusInternalServerError, problem{Error: err.Error(), Applied: true})
		return
	}
	time.Sleep(what.after)
	if what.end == drop {
		panic(http.ErrAbortHandler)
	}
	respond(w, http.StatusCreated, struct{}{})
}

const maxBody = 1 << 20

func decode(w http.ResponseWriter, r *http.Request, v any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(v); err != nil {
		respond(w, http.StatusBadRequest, problem{Error: err.Error()})
		return false
	}
	return true
}

func respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
