// Sweep is a program for cron: it asks the providers once about every unknown outcome that is due, and ends.
//
//	*/5 * * * *  STRIPE_KEY=… MAILGUN_KEY=… ZENDESK_TOKEN=… sweep /var/lib/bot/ledger.sqlite3
//
// It exits with 1 if it could not ask the ledger, and with 2 if it was called wrongly.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/fencedrun/fencedrun/examples/probes/mailgun"
	"github.com/fencedrun/fencedrun/examples/probes/stripe"
	"github.com/fencedrun/fencedrun/examples/probes/zendesk"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
	"github.com/fencedrun/fencedrun/runs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(stderr, "usage: sweep LEDGER.sqlite3")
		return 2
	}
	// Any other ledger is this line.
	store, err := sqliteledger.Open(ctx, args[0], &sqliteledger.Config{MustExist: true})
	if err == nil {
		err = sweep(ctx, store, intents(http.DefaultClient, os.Getenv), stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "sweep:", err)
		return 1
	}
	return 0
}

// intents are those of the workers: a sweep asks about no others.
func intents(client *http.Client, setting func(string) string) []runs.Declared {
	refunds := &stripe.Refunds{Client: client, Key: setting("STRIPE_KEY")}
	mail := &mailgun.Mail{Client: client, Key: setting("MAILGUN_KEY"), Domain: setting("MAILGUN_DOMAIN")}
	desk := &zendesk.Desk{
		Client: client, Subdomain: setting("ZENDESK_SUBDOMAIN"), Email: setting("ZENDESK_EMAIL"), Token: setting("ZENDESK_TOKEN"),
	}
	return []runs.Declared{refunds.Intent(), mail.Intent(), desk.Intent()}
}

// sweep closes the ledger.
func sweep(ctx context.Context, store ledger.Store, intents []runs.Declared, stdout io.Writer) error {
	keeper, err := runs.New(store, &runs.Config{Intents: intents})
	if err != nil {
		_ = store.Close()
		return err
	}
	defer keeper.Close()
	swept, err := keeper.Sweep(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "asked %d: %d had happened, %d had not, %d stay unknown; too early for %d; %d wait for a person\n",
		swept.Asked, swept.Applied, swept.NotApplied, swept.Unknown, swept.NotYet, swept.NoProbe)
	return nil
}
