// Package archtest holds the rules of the tree that the compiler does not know:
// which way imports point, and what production code never does. It has tests only.
package archtest
