"""Large made-up histories of a healthy Kafka, and anomalies planted in them: what the auditor is measured on."""
