// Package private starts Postgres, PgBouncer and Redis servers of one's own: on free ports of
// the loopback interface, in a folder of their own, under an account without privileges, and
// gone when the process that started them is gone. It is for this module's tests and
// benchmarks; package main in the directory above is the command around it.
//
// It works on Unix only. On Linux the servers die even if their parent is killed.
package private
