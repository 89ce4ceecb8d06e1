// Package operator is the operators' commands of fencedrun: what is unknown, what happened, and
// what a person decides about it, over any ledger. There is one file for each command.
package operator
