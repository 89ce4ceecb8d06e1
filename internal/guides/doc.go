// Package guides holds what docs/guides shows: every piece of Go there is in a test here, or in an
// example of the package it is about, word for word, and the script that computes keys in another
// language is run.
package guides
