// Package zendesk is a recipe to copy: tickets that are opened once, and are found again by their external id when Zendesk's
// answer was lost. Most help desks keep such an id for their users.
package zendesk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

// Desk opens tickets in one Zendesk account.
type Desk struct {
	Client    *http.Client
	Subdomain string
	// Email and Token are an agent's who sees every ticket: one who sees few does not find the others.
	Email, Token string
}

// Ticket is what is asked for. For a call with the same idempotency key Zendesk wants the same ticket.
type Ticket struct {
	Subject, Body string
}

// Opened is what is known of a ticket that was opened.
type Opened struct {
	ID int64 `json:"id"`
}

// Intent declares the tickets; put it into runs.Config.Intents, so that a sweep can ask about them.
func (d *Desk) Intent() runs.Intent[Opened] {
	return runs.Intent[Opened]{
		Name:     "open_ticket",
		Distinct: true, // the key says what the ticket is about
		// Zendesk forgets a key after two hours.
		HonoursKey: 2 * time.Hour,
		// Zendesk says of its search that it lags, and says nothing of the kind of its list of tickets. It makes no promise
		// either; but a "not found" that is wrong, and believed within two hours, only meets the key once more.
		Probe:          d.probe,
		ReadYourWrites: true,
	}
}

// Once opens a ticket once.
func (d *Desk) Once(ctx context.Context, key runs.EffectKey, ticket Ticket) (Opened, error) {
	return d.Intent().Once(ctx, key, func(ctx context.Context, call *runs.Call) (Opened, error) {
		opened, err := d.open(ctx, call.IdempotencyKey, ticket)
		if err == nil {
			call.SetReference(reference(opened))
		}
		return opened, err
	}, runs.With{Summary: ticket.Subject})
}

func (d *Desk) open(ctx context.Context, idempotencyKey string, ticket Ticket) (Opened, error) {
	body, err := json.Marshal(map[string]any{"ticket": map[string]any{
		"external_id": idempotencyKey,
		"subject":     ticket.Subject,
		"comment":     map[string]string{"body": ticket.Body},
	}})
	if err != nil {
		return Opened{}, runs.NotApplied(err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url("tickets.json"), bytes.NewReader(body))
	if err != nil {
		return Opened{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", idempotencyKey)
	var created struct {
		Ticket Opened `json:"ticket"`
	}
	err = d.do(request, &created)
	return created.Ticket, err
}

func (d *Desk) probe(ctx context.Context, q runs.Question) (runs.Found[Opened], error) {
	var none runs.Found[Opened]
	query := url.Values{"external_id": {q.IdempotencyKey}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url("tickets.json")+"?"+query.Encode(), nil)
	if err != nil {
		return none, err
	}
	var list struct {
		Tickets []struct {
			Opened
			ExternalID string `json:"external_id"`
		} `json:"tickets"`
	}
	if err := d.do(request, &list); err != nil {
		return none, err
	}
	for _, ticket := range list.Tickets {
		if ticket.ExternalID == q.IdempotencyKey {
			return runs.Applied(ticket.Opened, reference(ticket.Opened)), nil
		}
	}
	// "Not found" lets the ticket be opened again. It takes an empty list to say so: other tickets were not asked for.
	if list.Tickets == nil || len(list.Tickets) > 0 {
		return none, errors.New("zendesk: probe: the answer is no list of the tickets with that external id")
	}
	return runs.NotFound[Opened](), nil
}

func reference(t Opened) string { return strconv.FormatInt(t.ID, 10) }

func (d *Desk) url(what string) string {
	return "https://" + d.Subdomain + ".zendesk.com/api/v2/" + what
}

func (d *Desk) do(request *http.Request, into any) error {
	request.SetBasicAuth(d.Email+"/token", d.Token)
	answer, err := d.Client.Do(request)
	if err != nil {
		return err // it may have arrived
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusCreated {
		failed := &Error{Status: answer.StatusCode}
		_ = json.NewDecoder(answer.Body).Decode(failed) // the status is enough
		return failed
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// Error is an answer of Zendesk's that is no success.
type Error struct {
	Status      int    `json:"-"`
	Description string `json:"description"`
}

func (e *Error) Error() string { return fmt.Sprintf("zendesk: %d: %s", e.Status, e.Description) }

// NotApplied says which answers are a "no" (rule S2.1). A 409 may say that another request with the key is at work.
func (e *Error) NotApplied() bool {
	return e.Status >= 400 && e.Status < 500 && e.Status != http.StatusConflict
}
