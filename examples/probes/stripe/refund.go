// Package stripe is a recipe to copy: refunds with Stripe's API that happen once, and are found again when their answer was
// lost. It needs nothing but the standard library; with Stripe's own SDK the intent and the probe are the same.
package stripe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fencedrun/fencedrun/runs"
)

// Refunds makes refunds.
type Refunds struct {
	Client *http.Client
	// Key is the secret key. Probes must ask as the account that the refunds are made with.
	Key string
}

// Deal is what is refunded. It is kept with the effect, and is what its probe goes by.
type Deal struct {
	PaymentIntent string `json:"payment_intent"`
	Amount        int64  `json:"amount"` // in the currency's smallest unit
}

// Refund is what Stripe says of a refund. It was made whatever its status is: one that has failed is another matter than one
// that nobody asked for.
type Refund struct {
	ID       string `json:"id"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Status   string `json:"status"`
}

// Intent declares the refunds; put it into runs.Config.Intents, so that a sweep can ask about them.
func (r *Refunds) Intent() runs.Intent[Refund] {
	return runs.Intent[Refund]{
		Name:     "refund",
		Distinct: true, // the key names the order and the line
		// Stripe may forget a key once it is 24 hours old. While it knows the key, calling again gets the first call's answer.
		HonoursKey: 24 * time.Hour,
		// Stripe says of its lists, unlike of its searches, that what was written can be read at once.
		Probe:          r.probe,
		ReadYourWrites: true,
	}
}

// Once refunds a deal once.
func (r *Refunds) Once(ctx context.Context, key runs.EffectKey, deal Deal) (Refund, error) {
	return r.Intent().Once(ctx, key, func(ctx context.Context, call *runs.Call) (Refund, error) {
		refund, err := r.create(ctx, call.IdempotencyKey, deal)
		call.SetReference(refund.ID)
		return refund, err
	}, runs.With{Params: deal})
}

// mark is the metadata that says which effect a refund is. Stripe's Idempotency-Key itself cannot be searched for.
const mark = "fencedrun"

func (r *Refunds) create(ctx context.Context, idempotencyKey string, deal Deal) (Refund, error) {
	form := url.Values{
		"payment_intent":         {deal.PaymentIntent},
		"amount":                 {strconv.FormatInt(deal.Amount, 10)},
		"metadata[" + mark + "]": {idempotencyKey},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/refunds", strings.NewReader(form.Encode()))
	if err != nil {
		return Refund{}, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Idempotency-Key", idempotencyKey)
	var made Refund
	err = r.do(request, &made)
	return made, err
}

func (r *Refunds) probe(ctx context.Context, q runs.Question) (runs.Found[Refund], error) {
	var none runs.Found[Refund]
	var deal Deal
	if err := json.Unmarshal([]byte(q.Params), &deal); err != nil {
		return none, fmt.Errorf("stripe: probe: the params of the refund: %w", err)
	}
	query := url.Values{"payment_intent": {deal.PaymentIntent}, "limit": {"100"}}
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v1/refunds?"+query.Encode(), nil)
		if err != nil {
			return none, err
		}
		var page struct {
			Object  string `json:"object"`
			HasMore bool   `json:"has_more"`
			Data    []struct {
				Refund
				Metadata map[string]string `json:"metadata"`
			} `json:"data"`
		}
		if err := r.do(request, &page); err != nil {
			return none, err
		}
		for _, refund := range page.Data {
			if refund.Metadata[mark] == q.IdempotencyKey {
				return runs.Applied(refund.Refund, refund.ID), nil
			}
		}
		switch {
		case page.Object != "list" || page.HasMore && len(page.Data) == 0:
			// "Not found" lets the refund be made again. It takes the end of a list to say so.
			return none, errors.New("stripe: probe: the answer is no list of refunds")
		case !page.HasMore:
			return runs.NotFound[Refund](), nil
		}
		query.Set("starting_after", page.Data[len(page.Data)-1].ID)
	}
}

const base = "https://api.stripe.com"

func (r *Refunds) do(request *http.Request, into any) error {
	request.Header.Set("Authorization", "Bearer "+r.Key)
	answer, err := r.Client.Do(request)
	if err != nil {
		return err // it may have arrived
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		failed := &Error{Status: answer.StatusCode}
		_ = json.NewDecoder(answer.Body).Decode(failed) // the status is enough
		return failed
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// Error is an answer of Stripe's that is no success.
type Error struct {
	Status int `json:"-"`
	Detail struct {
		Type    string `json:"type"`
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func (e *Error) Error() string {
	return fmt.Sprintf("stripe: %d %s %s: %s", e.Status, e.Detail.Type, e.Detail.Code, e.Detail.Message)
}

// NotApplied says which answers are a "no" (rule S2.1). A 409 says that another request with the key is at work, and after a
// 5xx Stripe itself calls the outcome indeterminate.
func (e *Error) NotApplied() bool {
	return e.Status >= 400 && e.Status < 500 && e.Status != http.StatusConflict
}
