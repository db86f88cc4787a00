// Package archtest holds the rules of the tree that the compiler does not know:
// which way imports point, what production code never does. It has
// tests only.
package archtest
