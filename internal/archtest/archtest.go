// Package archtest holds the rules of the tree that the compiler does not know:
// which way imports point, what production code never does, how long a file may
// be. It has tests only.
package archtest
