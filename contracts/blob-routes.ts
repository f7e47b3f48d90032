/** Routes of a deployment's services: blob (interface 4.7; decisions, Deployment services). */
export const blobRoutes = {} as const;
