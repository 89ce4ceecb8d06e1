// Package live holds tests of the whole library on real Postgres and Redis servers: connections
// that are cut at every frame, transactions that crash, pools that run dry. They need the servers of
// "go run ./internal/services", and are skipped where there are none unless FENCEDRUN_TEST_SERVICES
// is "required".
package live
