// Package archtest holds no code, only tests of the module's shape: which package may import
// which, what a user's program compiles when it imports one of ours, and that the packages
// which a simulator drives reach time, concurrency and randomness through internal/seam alone.
//
// The linter's depguard and forbidigo rules say much of this in an editor. These tests say it
// to everybody who runs go test, and they see what a linter of single files cannot: what comes
// in through a dependency's dependency.
package archtest
