package zendesk_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// fake is the part of Zendesk's API that tickets are opened and found with, as it is documented:
// https://developer.zendesk.com/api-reference/ticketing/tickets/tickets and …/ticketing/introduction#idempotency.
type fake struct {
	now     func() time.Time
	tickets []ticket
	saved   map[string]saved
	posts   int
	lists   int
	list    string        // what a list answers instead, if it is not empty
	lag     time.Duration // until the search finds a ticket
}

type ticket struct {
	ID         int64     `json:"id"`
	ExternalID string    `json:"external_id"`
	Subject    string    `json:"subject"`
	CreatedAt  time.Time `json:"created_at"`
}

// saved is the answer that Zendesk keeps for an idempotency key.
type saved struct {
	body   string
	ticket ticket
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, token, _ := r.BasicAuth()
	switch {
	case r.Host != "shop.zendesk.com" || user != "bot@example.com/token" || token != "t1":
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error": "Couldn't authenticate you"}`)
	case r.URL.Path == "/api/v2/tickets.json" && r.Method == http.MethodPost:
		f.posts++
		f.open(w, r)
	case r.URL.Path == "/api/v2/tickets.json":
		f.lists++
		f.find(w, r)
	case r.URL.Path == "/api/v2/search.json":
		f.search(w, r)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// open is with Zendesk's own idempotency, which lasts two hours.
func (f *fake) open(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	key := r.Header.Get("Idempotency-Key")
	before, known := f.saved[key]
	if known && f.now().Sub(before.ticket.CreatedAt) >= 2*time.Hour {
		known = false
	}
	switch {
	case known && before.body != string(body):
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error": "IdempotentRequestError", "description": "Request parameters don't match the given idempotency key"}`)
		return
	case known:
		w.Header().Set("X-Idempotency-Lookup", "hit")
	default:
		w.Header().Set("X-Idempotency-Lookup", "miss")
		var asked struct {
			Ticket struct {
				ExternalID string `json:"external_id"`
				Subject    string `json:"subject"`
				Comment    struct {
					Body string `json:"body"`
				} `json:"comment"`
			} `json:"ticket"`
		}
		if err := json.Unmarshal(body, &asked); err != nil || asked.Ticket.Comment.Body == "" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"error": "RecordInvalid", "description": "Record validation errors"}`)
			return
		}
		before = saved{string(body), f.add(asked.Ticket.ExternalID, asked.Ticket.Subject)}
		if key != "" {
			f.saved[key] = before
		}
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"ticket": before.ticket})
}

func (f *fake) add(externalID, subject string) ticket {
	t := ticket{ID: int64(len(f.tickets) + 101), ExternalID: externalID, Subject: subject, CreatedAt: f.now()}
	f.tickets = append(f.tickets, t)
	return t
}

func (f *fake) find(w http.ResponseWriter, r *http.Request) {
	if f.list != "" {
		fmt.Fprint(w, f.list)
		return
	}
	found := []ticket{}
	for _, t := range f.tickets {
		if t.ExternalID == r.URL.Query().Get("external_id") {
			found = append(found, t)
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"tickets": found, "count": len(found), "next_page": nil, "previous_page": nil})
}

func (f *fake) search(w http.ResponseWriter, r *http.Request) {
	found := []ticket{}
	for _, t := range f.tickets {
		if r.URL.Query().Get("query") == "type:ticket external_id:"+t.ExternalID && f.now().Sub(t.CreatedAt) >= f.lag {
			found = append(found, t)
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"results": found, "count": len(found), "next_page": nil, "previous_page": nil})
}
