package faulty

// stopMyself does what comes nearest here.
func stopMyself() { select {} }
