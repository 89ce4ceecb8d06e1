//go:build unix

package private

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Service is something that tests need running.
type Service string

// The services, in the order in which they are listed to people.
const (
	ServicePostgres     Service = "postgres"
	ServicePgBouncer    Service = "pgbouncer" // needs a Postgres
	ServiceRedis        Service = "redis"
	ServiceRedisCluster Service = "redis-cluster"
)

// Services lists them all.
func Services() []Service {
	return []Service{ServicePostgres, ServicePgBouncer, ServiceRedis, ServiceRedisCluster}
}

// Package is the Debian package that has the service's programs.
func (s Service) Package() string {
	switch s {
	case ServicePostgres:
		return "postgresql"
	case ServicePgBouncer:
		return "pgbouncer"
	default:
		return "redis-server"
	}
}

// program is the server's executable.
func (s Service) program() string {
	switch s {
	case ServicePostgres:
		return "postgres"
	case ServicePgBouncer:
		return "pgbouncer"
	default:
		return "redis-server"
	}
}

// places are where servers are installed beside the directories of PATH, which lacks sbin for
// most people, and the private directories of a distribution's Postgres for everybody.
var places = []string{
	"/usr/lib/postgresql/*/bin", // Debian
	"/usr/pgsql-*/bin",          // Red Hat
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
	"/usr/local/pgsql/bin",
	"/usr/local/sbin", "/usr/sbin", "/sbin",
}

// Find returns the path of the service's server, and false where it is not installed.
func (s Service) Find() (string, bool) {
	path, err := exec.LookPath(s.program())
	if err == nil && s.complete(path) {
		return path, true
	}
	return s.search(places)
}

func (s Service) search(patterns []string) (string, bool) {
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(pattern, s.program()))
		if err != nil {
			continue // a pattern of ours that is malformed matches nothing
		}
		slices.SortFunc(found, func(a, b string) int { return slices.Compare(numbers(b), numbers(a)) })
		for _, path := range found {
			if s.complete(path) {
				return path, true
			}
		}
	}
	return "", false
}

// complete says whether path can be executed, and for Postgres that it is no client package:
// initdb stands beside it.
func (s Service) complete(path string) bool {
	return executable(path) && (s != ServicePostgres || executable(filepath.Join(filepath.Dir(path), "initdb")))
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// numbers are the numbers in a path, so that version 15 sorts above version 9.6.
func numbers(path string) []int {
	var found []int
	for digits := range strings.FieldsFuncSeq(path, func(r rune) bool { return r < '0' || r > '9' }) {
		if n, err := strconv.Atoi(digits); err == nil {
			found = append(found, n)
		}
	}
	return found
}

// MissingError says which services have no server on this machine.
type MissingError struct {
	Services []Service
	Why      string // it was not installed here, "" when nobody tried
}

// Packages are the Debian packages that would help, each once.
func (e *MissingError) Packages() []string {
	var names []string
	for _, s := range e.Services {
		if !slices.Contains(names, s.Package()) {
			names = append(names, s.Package())
		}
	}
	return names
}

func (e *MissingError) Error() string {
	var programs, variables []string
	for _, s := range e.Services {
		if !slices.Contains(programs, s.program()) {
			programs = append(programs, s.program())
		}
		variables = append(variables, s.Variable())
	}
	text := fmt.Sprintf("services: find: no %s on this machine", strings.Join(programs, ", no "))
	if e.Why != "" {
		text += ", and " + e.Why
	}
	return fmt.Sprintf("%s: install what Debian calls %s, or set %s to servers that run already",
		text, strings.Join(e.Packages(), ", "), strings.Join(variables, ", "))
}

// Missing returns a MissingError if one of the services has no server on this machine.
func Missing(services []Service) error {
	var missing []Service
	for _, s := range services {
		if _, ok := s.Find(); !ok {
			missing = append(missing, s)
		}
	}
	if len(missing) > 0 {
		return &MissingError{Services: missing}
	}
	return nil
}
