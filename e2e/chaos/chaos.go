// Package chaos searches and writes through real sidecars and real stores while everything
// around them fails: processes are killed and stopped, links are slow, cut and half open,
// stores lie, disks are full. Every answer is compared with one that the test computes. It
// contains only tests; docs/how-to/prove-it.md says how to run them for a day.
package chaos
