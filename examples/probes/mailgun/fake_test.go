package mailgun_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// fake is the part of Mailgun's API that messages are sent and found with, as it is documented:
// https://documentation.mailgun.com/docs/mailgun/api-reference/send/mailgun/messages and …/events.
type fake struct {
	now     func() time.Time
	lag     time.Duration // until an event can be read
	events  []event
	sent    int // messages that go out, duplicates included
	asked   int
	rejects bool // accepts a message, and then rejects it
}

type event struct {
	Event     string  `json:"event"`
	ID        string  `json:"id"`
	Timestamp float64 `json:"timestamp"`
	Message   struct {
		Headers map[string]string `json:"headers"`
	} `json:"message"`

	at time.Time
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, key, _ := r.BasicAuth()
	switch {
	case user != "api" || key != "key-1":
		w.WriteHeader(http.StatusUnauthorized)
	case r.Method == http.MethodPost && r.URL.Path == "/v3/mg.example.com/messages":
		f.send(w, r)
	case r.Method == http.MethodGet && r.URL.Path == "/v3/mg.example.com/events":
		f.asked++
		f.page(w, r)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// send takes any message, as often as it comes.
func (f *fake) send(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	if r.PostForm.Get("to") == "" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"message": "to parameter is missing"}`)
		return
	}
	id := r.PostForm.Get("h:Message-Id")
	if f.rejects {
		f.tell("rejected", id)
	} else {
		f.tell("accepted", id)
		f.tell("delivered", id)
		f.sent++
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"id": id, "message": "Queued. Thank you."})
}

func (f *fake) tell(what, id string) {
	e := event{Event: what, ID: strconv.Itoa(len(f.events)), at: f.now(), Timestamp: float64(f.now().Unix())}
	e.Message.Headers = map[string]string{"message-id": strings.Trim(id, "<>")}
	f.events = append(f.events, e)
}

func (f *fake) page(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	begin, err := strconv.ParseFloat(query.Get("begin"), 64)
	if err != nil || query.Get("ascending") != "yes" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	items := []event{}
	for _, e := range f.events {
		if e.Message.Headers["message-id"] == query.Get("message-id") && e.Timestamp >= begin && f.now().Sub(e.at) >= f.lag {
			items = append(items, e)
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"items": items, "paging": map[string]string{}})
}
