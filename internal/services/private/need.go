package private

import (
	"os"
	"strings"
)

// Variable is the environment variable in which tests look for the service.
func (s Service) Variable() string {
	return "FENCEDRUN_TEST_" + strings.ToUpper(strings.ReplaceAll(string(s), "-", "_"))
}

// Required is the environment variable that makes tests fail, instead of skipping, where a
// service that they need is not named. Its value is "required".
const Required = "FENCEDRUN_TEST_SERVICES"

// Test is a testing.TB, as far as Need and Unavailable want one.
type Test interface {
	Helper()
	Fatal(args ...any)
	Skip(args ...any)
}

// Need returns where the service is, and skips the test if nobody says, or fails it if services are
// required.
func (s Service) Need(t Test) string {
	t.Helper()
	at := os.Getenv(s.Variable())
	if at == "" {
		Unavailable(t, s.Variable()+" is not set: make test starts the servers")
	}
	return at
}

// Unavailable skips the test, or fails it if services are required.
func Unavailable(t Test, why string) {
	t.Helper()
	if os.Getenv(Required) == "required" {
		t.Fatal(why + ", and " + Required + "=required")
	}
	t.Skip(why)
}
