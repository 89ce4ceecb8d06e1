package stripe_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"time"
)

// fake is the part of Stripe's API that refunds are made and found with, as it is documented:
// https://docs.stripe.com/api/refunds and https://docs.stripe.com/api/idempotent_requests.
type fake struct {
	now      func() time.Time
	made     []refund // oldest first
	saved    map[string]saved
	posts    int
	lists    int
	breaksOn int    // the number of the POST that makes its refund and then fails inside Stripe
	list     string // what a list answers instead, if it is not empty
}

type refund struct {
	ID            string            `json:"id"`
	Object        string            `json:"object"`
	Amount        int64             `json:"amount"`
	Currency      string            `json:"currency"`
	PaymentIntent string            `json:"payment_intent"`
	Status        string            `json:"status"`
	Metadata      map[string]string `json:"metadata"`
}

// saved is the answer that Stripe keeps for an idempotency key.
type saved struct {
	params string
	status int
	body   string
	at     time.Time
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Authorization") != "Bearer sk_test_1":
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Path != "/v1/refunds":
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodPost:
		f.posts++
		f.once(w, r)
	default:
		f.lists++
		f.page(w, r)
	}
}

// once is Stripe's own idempotency: the first answer again, whatever it was, until the key is forgotten.
func (f *fake) once(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	key := r.Header.Get("Idempotency-Key")
	before, known := f.saved[key]
	if known && f.now().Sub(before.at) >= 24*time.Hour {
		known = false
	}
	switch {
	case known && before.params != r.PostForm.Encode():
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error": {"type": "idempotency_error", "message": "other parameters"}}`)
		return
	case !known:
		answer := httptest.NewRecorder()
		f.create(answer, r)
		before = saved{r.PostForm.Encode(), answer.Code, answer.Body.String(), f.now()}
		f.saved[key] = before
	}
	w.WriteHeader(before.status)
	fmt.Fprint(w, before.body)
}

func (f *fake) create(w http.ResponseWriter, r *http.Request) {
	amount, err := strconv.ParseInt(r.PostForm.Get("amount"), 10, 64)
	if err != nil || amount <= 0 {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error": {"type": "invalid_request_error", "code": "parameter_invalid_integer", "message": "Invalid positive integer"}}`)
		return
	}
	made := f.add(r.PostForm.Get("payment_intent"), amount, map[string]string{"fencedrun": r.PostForm.Get("metadata[fencedrun]")})
	if f.posts == f.breaksOn {
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, `{"error": {"type": "api_error", "message": "An unknown error occurred"}}`)
		return
	}
	_ = json.NewEncoder(w).Encode(made)
}

func (f *fake) add(intent string, amount int64, metadata map[string]string) refund {
	made := refund{fmt.Sprintf("re_%d", len(f.made)+1), "refund", amount, "eur", intent, "succeeded", metadata}
	f.made = append(f.made, made)
	return made
}

// page is a list: the newest first, a page at a time, and nothing lags.
func (f *fake) page(w http.ResponseWriter, r *http.Request) {
	if f.list != "" {
		fmt.Fprint(w, f.list)
		return
	}
	query := r.URL.Query()
	var all []refund
	for _, made := range slices.Backward(f.made) {
		if made.PaymentIntent == query.Get("payment_intent") {
			all = append(all, made)
		}
	}
	if after := query.Get("starting_after"); after != "" {
		all = all[slices.IndexFunc(all, func(made refund) bool { return made.ID == after })+1:]
	}
	limit, err := strconv.Atoi(query.Get("limit"))
	if err != nil {
		limit = 10
	}
	limit = min(limit, 100)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"object": "list", "url": "/v1/refunds", "has_more": len(all) > limit, "data": all[:min(limit, len(all))],
	})
}
