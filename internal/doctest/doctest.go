// Package doctest holds what the documentation says to what is there: that links
// lead somewhere, and that its commands print what it shows. It has tests only.
package doctest
