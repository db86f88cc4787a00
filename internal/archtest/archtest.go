// Package archtest tests rules of the source tree that the compiler does not check: the
// direction of imports, and what production code must not do. It contains only tests.
package archtest
