package pgledger_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencedrun/fencedrun/ledger/pgledger"
)

// A variable that was never set is an error and no panic.
func TestMigrateWithoutADatabaseIsAnError(t *testing.T) {
	var pool *pgxpool.Pool
	var conn *pgx.Conn
	for _, db := range []pgledger.Beginner{nil, pool, conn} {
		if err := pgledger.Migrate(t.Context(), db, ""); err == nil || !strings.Contains(err.Error(), "pgledger: migrate: db is nil") {
			t.Errorf("Migrate(%T): %v", db, err)
		}
	}
}
