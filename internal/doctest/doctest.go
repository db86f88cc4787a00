// Package doctest tests the documentation: links must lead somewhere, and commands must
// print the output shown. It contains only tests.
package doctest
