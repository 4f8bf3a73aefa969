-- 1 MiB to the server with each request.
wrk.method = "POST"
wrk.body = string.rep("0123456789abcdef", 65536)
wrk.headers["content-type"] = "application/octet-stream"
