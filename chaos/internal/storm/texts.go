package storm

import (
	"embed"
	"strings"
)

//go:embed sql/*.sql lua/*.lua
var files embed.FS

// text returns a statement, with what stands in braces replaced.
func text(name string, replace ...string) string {
	b, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return strings.NewReplacer(replace...).Replace(string(b))
}
